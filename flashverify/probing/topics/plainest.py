"""The plainest case that runs, and how O and the LSE come back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from flashverify.errors import NoVerdictError
from flashverify.probing.notebook import NEAR, TimeOverError
from flashverify.probing.returns import ADVICE
from flashverify.probing.words import case_text
from flashverify.subjects.inability import FORWARD_ONLY, inability_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.probing.answers import Seen
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["plainest_case", "returned_outputs"]

_PLAIN: Words = {
    "batch": 1,
    "heads_q": 2,
    "heads_kv": 2,
    "seq_q": 64,
    "seq_k": 64,
    "dim_qk": 64,
    "dim_v": 64,
    "dtype": "fp16",
    "backward": "no",
}
_SHOWN = 6
_TRIED = 30
"""Cases after which one that runs and is wrong is taken for want of a right one."""
_OTHER: tuple[Words, ...] = (
    {},
    {"dtype": "bf16"},
    {"dtype": "fp32"},
    {"seq_q": 128, "seq_k": 128},
    {"layout": "bshd"},
    {"seq_q": 1, "seq_k": 64},
    {"dim_qk": 128, "dim_v": 128},
    {"dim_qk": 32, "dim_v": 32},
    {"heads_q": 8, "heads_kv": 8},
    {"heads_q": 8, "heads_kv": 2},
    {"heads_q": 32, "heads_kv": 8},
    {"heads_q": 1, "heads_kv": 1},
    {"seq_q": 256, "seq_k": 256},
    {"seq_q": 512, "seq_k": 512, "dim_qk": 128, "dim_v": 128},
)
"""Shapes, the usual ones first."""
_REQUIRED: tuple[tuple[str, Words], ...] = (
    ("", {}),
    ("causal", {"causal": "top-left"}),
    ("causal", {"causal": "bottom-right"}),
    ("packed", {"packed": "0,{q}/0,{k}"}),
    ("packed causal", {"packed": "0,{q}/0,{k}", "causal": "bottom-right"}),
    ("key_lengths", {"klen": "{k}"}),
    ("pages", {"page_size": 16}),
    ("pages key_lengths", {"page_size": 16, "klen": "{k}"}),
    ("window", {"window": "32,0"}),
    ("causal window", {"causal": "bottom-right", "window": "32,*"}),
)
"""Parts that a subject may need in every case."""


def _candidates() -> Iterator[tuple[str, Words]]:
    """The plain case with one thing changed, then with two, each with every part that may be required."""
    two = [one | other for one, other in itertools.combinations(_OTHER[1:], 2) if not one.keys() & other.keys()]
    for shapes in (_OTHER, two):
        for parts, words in _REQUIRED:
            for shape in shapes:
                found = _PLAIN | shape
                sizes = {"q": found["seq_q"], "k": found["seq_k"]}
                yield parts, found | {key: str(value).format(**sizes) for key, value in words.items()}


def plainest_case(notebook: Notebook) -> None:
    """The first case that the subject runs and that is about right, or else the first that it runs.

    Raises:
        NoVerdictError: it runs none, or none in time.
    """
    refusals: dict[str, str] = {}
    first: tuple[str, Words] | None = None
    over = ""
    try:
        for number, candidate in enumerate(_candidates()):
            if first is not None and number >= _TRIED:
                break
            seen = notebook.seen(candidate[1], {"causal": {"causal": "bottom-right"}})
            if not seen.ran:
                _refused(seen.raised or seen.unusable, candidate[1], refusals)
                continue
            first = first or candidate
            outside = seen.refused and notebook.stated("supports")
            if not outside and (min(reading.apart for reading in seen.readings.values()) < NEAR or _only_lse(seen)):
                first = candidate
                break
    except TimeOverError:
        over = ", and the time was over"
    if first is None:
        lines = "\n".join(f"  {why}\n    {case}" for why, case in list(refusals.items())[:_SHOWN])
        raise NoVerdictError(f"the subject ran none of {notebook.trials} plain cases{over}; it raised\n{lines}")
    needed, notebook.base = first
    names = needed.split()
    if "pages" in names:
        notebook.infer("supports", "always_paged", True, "it raises without pages")
        names.remove("pages")
    if names:
        notebook.infer("supports", "required_masks", tuple(names), "it raises without them")
        notebook.infer("supports", "masks", tuple(names), "the plainest case has them")
    if refusals:
        why, text = next(iter(refusals.items()))
        notebook.notes.append(f"not every plain case runs: {text} raised {why}")


def _refused(why: str, words: Words, refusals: dict[str, str]) -> None:
    """Notes why a case does not run.

    Raises:
        NoVerdictError: the reason says that none will.
    """
    if why.startswith("no such case"):
        return
    refusals.setdefault(why, case_text(words))
    unable = inability_of(why.partition(":")[0], why)
    if unable is not None and unable is not FORWARD_ONLY:
        raise NoVerdictError(f"the subject could not run: {unable.reason}\n  {why}\n  {unable.advice}")


def _only_lse(seen: Seen) -> bool:
    """Whether the LSE is all that is wrong, as in another base."""
    return seen.asked.failing == ("lse",) or min(seen.bases.values(), default=1.0) < NEAR


def returned_outputs(notebook: Notebook) -> None:
    """Layout and dtype of O and the LSE, the base of the LSE, and whether the plainest case is about right."""
    readings: dict[str, Words] = {"scaled": {"scale": 1}}
    if "causal" not in notebook.base:
        readings["causal"] = {"causal": "bottom-right"}
    elif "window" not in notebook.base:
        readings["full"] = {"causal": None}
    seen = notebook.seen(None, readings)
    _layouts(notebook, seen)
    near = [name for name, reading in seen.readings.items() if reading.distances.get("o", 1.0) < NEAR]
    if near and "asked" not in near:
        _read_as(notebook, near[0], readings[near[0]])
        seen = notebook.seen()
    _lse(notebook, seen)
    if not near:
        notebook.broken = True
        notebook.suspect("the plainest case", f"the plainest case is wrong: {seen.failure}", {})


def _read_as(notebook: Notebook, name: str, words: Words) -> None:
    """The plainest case is right under another reading, which is asked for from now on."""
    if name == "causal":
        square = notebook.base["seq_q"] == notebook.base["seq_k"]
        notebook.base = notebook.base | {"causal": "top-left" if square else "bottom-right"}
        required = (*notebook.values.get(("supports", "required_masks"), ()), "causal")
        notebook.infer("supports", "required_masks", required, "its outputs are causal where no mask is asked for")
        notebook.infer("supports", "masks", required, "its outputs are causal where no mask is asked for")
    elif name == "scaled":
        sentence = "the logits are not scaled: the outputs are those of scale=1"
        notebook.suspect("the scale", sentence, {}, declare="Supports(scales=(1.0,))")
        notebook.base = notebook.base | words
    else:
        notebook.suspect("causal", "the causal mask is not applied", {})
        notebook.base = notebook.base | words


def _layouts(notebook: Notebook, seen: Seen) -> None:
    for name, expected, dtype in (("o", "bhsd", ""), ("lse", "bhs", "float32")):
        found = seen.returned.get(name)
        if found is None:
            continue
        shown = name.upper()
        if found.axes != expected:
            accepted = {"o": "[B, H, S, D]", "lse": "[B, H, S]"}[name]
            how = f"return {ADVICE[found.axes]}" if found.axes in ADVICE else "bring it into that shape"
            notebook.notes.append(f"{shown} comes back as {list(found.shape)}; the harness takes {accepted}: {how}")
        wanted = dtype or {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}[str(notebook.base["dtype"])]
        if found.dtype != wanted:
            how = "o.to(p.q.dtype)" if name == "o" else "lse.float()"
            notebook.notes.append(f"{shown} comes back in {found.dtype}; the harness takes {wanted}: return {how}")
        narrow = name == "lse" and found.dtype in ("float16", "bfloat16")
        if narrow:
            notebook.suspect(
                "the LSE", f"it is kept in {found.dtype}, which has too few bits for a logarithm of a sum", {}
            )


def _lse(notebook: Notebook, seen: Seen) -> None:
    if "lse" not in seen.outputs:
        notebook.lse_base = None
        notebook.infer("contract", "lse_base", None, "no LSE is returned")
        return
    base = min(seen.bases, key=lambda each: seen.bases[each])
    if seen.bases[base] > NEAR:
        notebook.suspect("the LSE", f"it is the logarithm of the row sum in no base that is known: {seen.failure}", {})
        notebook.ignored.add("lse")
        return
    other = seen.bases["2" if base == "e" else "e"]
    if other < NEAR:
        notebook.undecided.append("base of the LSE: every LSE seen is 0 in both bases")
        return
    notebook.lse_base = base
    notebook.infer("contract", "lse_base", base, f"squared error {seen.bases[base]:.1e}, {other:.1e} in the other base")
    notebook.dispute("lse_base", f"the LSE is in base {base}", {})
