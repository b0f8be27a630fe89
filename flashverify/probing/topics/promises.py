"""Rows without keys, what lies outside the lengths, repeated bits, and launch configurations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.probing.answers import Lost, Repeated
from flashverify.probing.declaration import inferred_supports, plain_supports
from flashverify.probing.questions import Repeat
from flashverify.probing.words import case_text

if TYPE_CHECKING:
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["empty_rows", "launches", "outside_lengths", "repeats"]

_LAUNCHES = 8
_SENTENCES = {
    "mean of v": "a row that sees no key holds the mean of V: a finite sentinel stands for -inf",
    "nan": "a row that sees no key is NaN",
    "several values": "rows that see no key hold different values",
}


def empty_rows(notebook: Notebook) -> None:
    """O and the LSE of a row that sees no key."""
    has = notebook.values.get(("supports", "masks"), ())
    causal = notebook.values.get(("supports", "causal"), ("top-left", "bottom-right"))
    cases: list[Words] = []
    if "causal" in has and "bottom-right" in causal and not notebook.square and notebook.most_rows is None:
        cases += [
            notebook.lengths(48, 16) | {"causal": "bottom-right"},
            notebook.lengths(130, 7) | {"causal": "bottom-right"},
        ]
    if "key_lengths" in has:
        cases.append({"batch": 2, "klen": f"{notebook.base['seq_k']},0"})
    if "bitmap" in has:
        cases.append({"bitmap": "0,1"})
    if "blocks" in has:
        cases.append({"blocks": "16,16,64,5"})
    for words in cases:
        notebook.seen(words)
    if not notebook.empty_rows:
        notebook.undecided.append("rows that see no key: no case that ran and is right has one")
        return
    for at, name in ((0, "o"), (1, "lse")):
        held = {entry[at]: entry[2] for entry in notebook.empty_rows if entry[at]}
        if not held:
            continue
        field = f"empty_row_{name}"
        odd = next((value for value in held if value in _SENTENCES), "")
        shown = name.upper()
        if odd:
            notebook.suspect(f"{shown} of a row that sees no key", _SENTENCES[odd], held[odd])
        elif len(held) == 1 and len(notebook.empty_rows) == 1 and abs(float(next(iter(held)))) not in (0.0, math.inf):
            notebook.undecided.append(f"{field}: one case alone has such rows, which hold {next(iter(held))}")
        elif len(held) > 1:
            notebook.suspect(
                f"{shown} of a row that sees no key",
                f"it is {' in one case and '.join(held)} in another",
                next(iter(held.values())),
            )
        else:
            value = float(next(iter(held)))
            notebook.infer("contract", field, value, f"{len(notebook.empty_rows)} cases")
            notebook.dispute(field, f"{shown} of a row that sees no key is {value}", next(iter(held.values())))


def outside_lengths(notebook: Notebook) -> None:
    """Whether outputs outside the declared lengths are written."""
    parts = {"key_lengths", "query_lengths"} & set(notebook.values.get(("supports", "masks"), ()))
    if not parts:
        return
    if "query_lengths" in parts or notebook.gradients:
        backward = "yes" if notebook.gradients else "no"
        words = notebook.lengths(24, 40)
        q, k = words["seq_q"], words["seq_k"]
        more: Words = {"qlen": f"{q},3"} if "query_lengths" in parts else {}
        more |= {"klen": f"{k},9"} if "key_lengths" in parts else {}
        words |= more | {"batch": 2, "backward": backward}
        seen = notebook.seen(words)
        held = {
            f"{name}={value}"
            for name, value in seen.outside.items()
            if name != "lse" and value not in ("", "0.0", "-0.0")
        }
        if not seen.ran:
            return
        notebook.settled("contract", "padding")
        if held:
            shown = ", ".join(sorted(held))
            notebook.infer("contract", "padding", "undefined", f"outside the lengths there is {shown}")
            notebook.dispute("padding", f"outside the lengths there is {shown}", words)


def repeats(notebook: Notebook) -> None:
    """Bits over repeats, and alone as in a batch."""
    words: Words = notebook.lengths(48, 96) | {"backward": "yes" if notebook.gradients else "no"}
    if not any("batch" in refusal.code for refusal in notebook.refusals) and "packed" not in notebook.base:
        words |= {"batch": 2}
    text = case_text(notebook.base | words)
    supports = plain_supports(inferred_supports(notebook))
    answer = notebook.ask(Repeat(case=text, assumed=notebook.assumed(str(notebook.base["dtype"]), supports=supports)))
    if isinstance(answer, Lost):
        notebook.undecided.append(f"deterministic, batch_invariant: {answer.why}")
        return
    assert isinstance(answer, Repeated)
    alone = [each for each in answer.differences if "(repeat)" not in each]
    again = [each for each in answer.differences if "(repeat)" in each]
    if answer.raised:
        notebook.undecided.append(f"deterministic, batch_invariant: {answer.raised}")
        return
    for name, found in (("deterministic", again), ("batch_invariant", alone)):
        if found:
            notebook.infer("contract", name, False, found[0])
            notebook.dispute(name, found[0], text)
        else:
            notebook.held.append(f"{name}=True")
            notebook.confirmed.add(("contract", name))


def launches(notebook: Notebook) -> None:
    """The declared launch configurations."""
    if not notebook.loaded.launches:
        notebook.undecided.append("launch values: none are declared, so none were tried")
        return
    step = max(1, len(notebook.loaded.launches) // _LAUNCHES)
    right = 0
    for launch in notebook.loaded.launches[::step]:
        text = ",".join(f"{name}:{value}" for name, value in launch)
        words: Words = notebook.lengths(65, 97) | {"launch": text}
        seen = notebook.seen(words)
        if not seen.ran:
            notebook.notes.append(f"launch={text} raises: {seen.raised}")
        elif notebook.verdict(seen) == "wrong":
            notebook.suspect(f"launch {text}", seen.failure, words)
        else:
            right += 1
    if right:
        notebook.confirmed |= {("supports", "launch"), ("supports", "launch_configs")}
