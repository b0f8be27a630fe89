"""Parts of the mask: which there are, with which alignment, and which may stand together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from flashverify.probing.notebook import Refusal
from flashverify.probing.topics.looks import looked

if TYPE_CHECKING:
    from flashverify.probing.notebook import Notebook, Words
    from flashverify.probing.protocol import Seen

__all__ = ["causal_mask", "combined_parts", "has_part", "other_masks", "windows"]

_ALIGNMENTS = ("top-left", "bottom-right")
_SIDES = {"left": "12,*", "right": "*,5"}
_SINGLE: dict[str, Words] = {
    "window": {"window": "12,*"},
    "softcap": {"softcap": 2},
    "alibi": {"alibi": "yes"},
    "bias": {"bias": "full"},
    "sink": {"sink": "yes"},
    "relative_bias": {"relative_bias": "8,16"},
}
_ROWS, _KEYS = 24, 40


def has_part(notebook: Notebook, part: str, seen: Seen, words: Words, *, kind: str = "masks") -> bool:
    """Whether the subject has a part of the mask or a modifier, by one case of it with the reading `without`.

    A part that the subject never looks at is none that it has. One that it looks at and that changes nothing looks like a defect; so does a
    wrong value, which is declared all the same so that the checks find it.

    Args:
        notebook: of the probe.
        part: its name, as in `Supports`.
        seen: of the case.
        words: of the case.
        kind: the field of `Supports` that names such parts.
    """
    verdict, look = notebook.verdict(seen), looked(seen, part)
    stated = notebook.stated("supports") and f"'{part}'" in notebook.loaded.declared["supports"].get(kind, "")
    if verdict == "raises" or look == "no":
        return False
    if verdict == "right" and look == "perhaps" and seen.readings["without"].right:
        notebook.undecided.append(f"{part}: every output is as it would be without it")
        return False
    if verdict == "without":
        if look == "yes" or stated:
            notebook.suspect(part, f"{part} is handed over, and the outputs are those without it", words)
            return True
        notebook.notes.append(f"{part} changes nothing: the outputs are those without it")
        return False
    if verdict == "wrong":
        notebook.suspect(part, seen.failure, words)
    return True


def _add(notebook: Notebook, part: str, why: str) -> None:
    found = (*notebook.values.get(("supports", "masks"), ()), part)
    notebook.infer("supports", "masks", tuple(dict.fromkeys(found)), why)


def causal_mask(notebook: Notebook) -> None:
    """Causal, its alignment, and whether it takes other rows than keys."""
    if "causal" in notebook.base:
        _add(notebook, "causal", "the plainest case is causal")
    else:
        square = notebook.lengths(_KEYS, _KEYS) | {"causal": "top-left"}
        if not has_part(notebook, "causal", notebook.seen(square, without={"causal": None}), square):
            return
        _add(notebook, "causal", "its cases run")
    shapes = [] if notebook.square else [notebook.lengths(_ROWS, _KEYS + notebook.multiple)]
    if notebook.most_rows is None and shapes:
        shapes.append(notebook.lengths(_KEYS + notebook.multiple, _ROWS))
    results = {
        asked: [
            (shape, notebook.seen(shape | {"causal": asked}, other={"causal": other}, without={"causal": None}))
            for shape in shapes
        ]
        for asked, other in zip(_ALIGNMENTS, reversed(_ALIGNMENTS), strict=True)
    }
    ran = {asked: [(words, seen) for words, seen in found if seen.ran] for asked, found in results.items()}
    if not any(ran.values()):
        if shapes:
            notebook.infer("supports", "rectangular_causal", False, "causal with other rows than keys raises")
        notebook.undecided.append("alignment of causal: both are the same where there are as many rows as keys")
        return
    verdicts = {asked: {notebook.verdict(seen) for _, seen in found} for asked, found in ran.items()}
    right = tuple(asked for asked in _ALIGNMENTS if verdicts[asked] == {"right"})
    for asked in _ALIGNMENTS:
        wrong = next(
            ((words, seen) for words, seen in ran[asked] if notebook.verdict(seen) in ("wrong", "without")), None
        )
        if wrong is not None:
            words, seen = wrong
            notebook.suspect(f"causal {asked}", seen.failure, words | {"causal": asked})
            right = (*right, asked)
    if right:
        notebook.infer(
            "supports",
            "causal",
            tuple(a for a in _ALIGNMENTS if a in right),
            "the other alignment is computed in its place, or raises",
        )


def windows(notebook: Notebook) -> None:
    """Windows, their sides, and their alignment without causal."""
    masks = notebook.values.get(("supports", "masks"), ())
    causal = next(iter(notebook.values.get(("supports", "causal"), ("bottom-right",)))) if "causal" in masks else None
    shape = notebook.lengths(_ROWS, 2 * _KEYS)
    sides, shown = [], False
    for side, window in _SIDES.items():
        alone: Words = shape | {"window": window}
        seen = notebook.seen(alone, without={"window": None}, other={"window_align": "bottom-right"})
        if not seen.ran and causal is not None and side == "left":
            alone = notebook.lengths(2 * _KEYS, 2 * _KEYS) | {"window": window, "causal": causal}
            seen = notebook.seen(alone, without={"window": None})
            if seen.ran:
                notebook.notes.append("a window raises without causal: say so in `also`")
        elif notebook.verdict(seen) == "other" and not shown:
            shown = True
        if notebook.verdict(seen) == "other" or has_part(notebook, "window", seen, alone):
            sides.append(side)
    if not sides:
        return
    _add(notebook, "window", "its cases run")
    if len(sides) == 1:
        notebook.infer("supports", "window_sides", tuple(sides), "a window that is bounded on the other side raises")
    if not notebook.square:
        _alignments(notebook, shape | {"window": _SIDES[sides[0]]})
    if causal is not None:
        words = notebook.lengths(2 * _KEYS, 2 * _KEYS) | {"window": _SIDES["left"], "causal": causal}
        seen = notebook.seen(words, without={"window": None})
        if seen.ran and notebook.verdict(seen) != "right":
            notebook.suspect("window with causal", seen.failure, words)


def _alignments(notebook: Notebook, words: Words) -> None:
    found = []
    asked: dict[str, tuple[Words, Words]] = {
        "top-left": (words, {"window_align": "bottom-right"}),
        "bottom-right": (words | {"window_align": "bottom-right"}, {"window_align": None}),
    }
    for name, (case, other) in asked.items():
        seen = notebook.seen(case, other=other, without={"window": None, "window_align": None})
        if notebook.verdict(seen) == "right":
            found.append(name)
    if found and found != ["top-left"]:
        notebook.infer(
            "supports",
            "window_alignments",
            tuple(found),
            "windows without causal, where rows and keys differ in number",
        )


def other_masks(notebook: Notebook) -> None:
    """Lengths, packed sequences, trees, patterns, prefixes and pages."""
    for part, words in _parts(notebook):
        key = next(iter(words))
        if key in notebook.base or (part == "prefix_lengths" and not _has(notebook, "causal")):
            if key in notebook.base and part != "pages":
                _add(notebook, part, "the plainest case has it")
            continue
        case = notebook.lengths(_ROWS, _KEYS) | words
        without: Words = {name: None for name in words if name not in ("causal", "batch", "seq_q", "seq_k")}
        seen = notebook.seen(case, without=without)
        if part == "pages":
            if seen.ran and looked(seen, "pages") != "no" and notebook.seen(case, pages_alone=True).right:
                _pages(notebook, case)
        elif has_part(notebook, part, seen, case):
            _add(notebook, part, "its cases run")


def _has(notebook: Notebook, part: str) -> bool:
    return part in notebook.values.get(("supports", "masks"), ())


def _parts(notebook: Notebook) -> list[tuple[str, Words]]:
    shape = notebook.lengths(_ROWS, _KEYS)
    q, k = int(str(shape["seq_q"])), int(str(shape["seq_k"]))
    step = notebook.multiple
    causal = next(iter(notebook.values.get(("supports", "causal"), ("top-left",))))
    nodes = ",".join(str(n // 2 - (n == 0)) for n in range(q)) if q > 1 else "-1"
    return [
        ("key_lengths", {"klen": f"{k},{max(1, k - 17)}", "batch": 2}),
        ("query_lengths", {"qlen": f"{q},{max(1, q - 7)}", "batch": 2}),
        (
            "packed",
            {
                "packed": f"0,{step * 5},{q + step * 5}/0,{step * 3},{k + step * 3}",
                "seq_q": q + step * 5,
                "seq_k": k + step * 3,
            },
        ),
        ("tree", {"tree": nodes}),
        ("blocks", {"blocks": "16,16,128,3"}),
        ("bitmap", {"bitmap": "160,3"}),
        ("prefix_lengths", {"prefix": f"{min(9, k)}", "causal": causal}),
        ("pages", {"page_size": 16}),
    ]


def _pages(notebook: Notebook, words: Words) -> None:
    sizes = []
    for size in (1, 16, 32, 64, 128):
        case = words | {"page_size": size}
        seen = notebook.seen(case)
        if not seen.ran:
            continue
        sizes.append(size)
        if notebook.verdict(seen) == "wrong":
            notebook.suspect("pages", seen.failure, case)
    notebook.infer("supports", "page_sizes", tuple(sizes), "those of 1, 16, 32, 64 and 128 that run")


def combined_parts(notebook: Notebook) -> None:
    """Whether two parts of the mask, or one and a modifier, may stand together."""
    masks = [part for part in notebook.values.get(("supports", "masks"), ()) if part != "prefix_lengths"]
    logits = notebook.values.get(("supports", "logits"), ())
    words = dict(_parts(notebook)) | _SINGLE
    words["causal"] = {"causal": next(iter(notebook.values.get(("supports", "causal"), ("top-left",))))}
    ran, refused = 0, []
    pairs = [*itertools.combinations(masks, 2), *itertools.product(masks, logits)]
    for one, two in pairs:
        case = notebook.lengths(_ROWS, _KEYS) | words[one] | words[two]
        seen = notebook.seen(case)
        if seen.ran:
            ran += two in masks
            if notebook.verdict(seen) == "wrong":
                notebook.suspect(f"{one} with {two}", seen.failure, case)
        elif not seen.raised.startswith("no such case"):
            refused.append({one, two})
    if refused and not ran and not notebook.values.get(("supports", "required_masks")):
        notebook.infer("supports", "combine_masks", False, "two parts together raise")
        refused = [pair for pair in refused if pair & set(logits)]
    if refused:
        _refuse(notebook, refused)
    notebook.settled("supports", "combine_masks")


def _refuse(notebook: Notebook, pairs: list[set[str]]) -> None:
    shown = "; ".join(" with ".join(sorted(pair)) for pair in pairs)
    code = f"any(pair <= case.mask.parts() | case.logits.names() for pair in {pairs})"
    notebook.notes.append(f"parts that raise together: {shown}")
    notebook.refusals.append(
        Refusal(
            code=code,
            reason="parts that raise together",
            refuses=lambda case: any(pair <= case.mask.parts() | case.logits.names() for pair in pairs),
        )
    )
