"""Causal and windows, with their alignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.probing.notebook import NEAR
from flashverify.probing.topics.parts import add_mask, has_part
from flashverify.probing.words import Refusal

if TYPE_CHECKING:
    from flashverify.probing.answers import Seen
    from flashverify.probing.notebook import Notebook
    from flashverify.probing.words import Words

__all__ = ["causal_mask", "windows"]

_ALIGNMENTS = ("top-left", "bottom-right")
_SIDES = {"left": "12,*", "right": "*,5"}
_ROWS, _KEYS = 24, 40


def causal_mask(notebook: Notebook) -> None:
    """Causal, its alignment, and whether it takes other rows than keys."""
    if "causal" in notebook.base:
        add_mask(notebook, "causal", "the plainest case is causal")
    else:
        square = notebook.lengths(_KEYS, _KEYS) | {"causal": "top-left"}
        if not has_part(notebook, "causal", notebook.seen(square, {"without": {"causal": None}}), square):
            return
        add_mask(notebook, "causal", "its cases run")
    shapes = [] if notebook.square else [notebook.lengths(_ROWS, _KEYS + notebook.multiple)]
    if notebook.most_rows is None and shapes:
        shapes.append(notebook.lengths(_KEYS + notebook.multiple, _ROWS))
    results = {
        asked: [
            (shape, notebook.seen(shape | {"causal": asked}, {"other": {"causal": other}, "without": {"causal": None}}))
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
    verdicts = {asked: {_answer(notebook, seen) for _, seen in found} for asked, found in ran.items()}
    right = tuple(asked for asked in _ALIGNMENTS if verdicts[asked] == {"right"})
    for asked in _ALIGNMENTS:
        wrong = next((pair for pair in ran[asked] if _answer(notebook, pair[1]) in ("wrong", "without")), None)
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


def _answer(notebook: Notebook, seen: Seen) -> str:
    """The verdict on a case; NaN in rows without keys, and in what it reaches, is told by itself."""
    lost = seen.ran and "nan" in (seen.empty.o, seen.empty.lse) and seen.asked.of_o < NEAR
    return "right" if lost else notebook.verdict(seen)


def windows(notebook: Notebook) -> None:
    """Windows, their sides, and their alignment without causal."""
    masks = notebook.values.get(("supports", "masks"), ())
    causal = next(iter(notebook.values.get(("supports", "causal"), ("bottom-right",)))) if "causal" in masks else None
    shape = notebook.lengths(_ROWS, 2 * _KEYS)
    sides: list[str] = []
    for side, window in _SIDES.items():
        case: Words = shape | {"window": window}
        seen = notebook.seen(case, {"without": {"window": None}, "other": {"window_align": "bottom-right"}})
        if not seen.ran and causal is not None and side == "left":
            case = notebook.lengths(2 * _KEYS, 2 * _KEYS) | {"window": window, "causal": causal}
            seen = notebook.seen(case, {"without": {"window": None}})
            if seen.ran:
                _only_with_causal(notebook)
        others = tuple(other for other in _SIDES if other != side)
        declare = f"Supports(window_sides={others})"
        if notebook.verdict(seen) == "other" or has_part(notebook, "window", seen, case, declare=declare):
            sides.append(side)
    if not sides:
        return
    add_mask(notebook, "window", "its cases run")
    if len(sides) == 1:
        notebook.infer("supports", "window_sides", tuple(sides), "a window that is bounded on the other side raises")
    if not notebook.square:
        _alignments(notebook, shape | {"window": _SIDES[sides[0]]})
    if causal is not None:
        words = notebook.lengths(2 * _KEYS, 2 * _KEYS) | {"window": _SIDES["left"], "causal": causal}
        seen = notebook.seen(words, {"without": {"window": None}})
        if seen.ran and notebook.verdict(seen) != "right":
            notebook.suspect("window with causal", seen.failure, words)


def _only_with_causal(notebook: Notebook) -> None:
    notebook.notes.append("a window raises without causal")
    notebook.refusals.append(
        Refusal(
            code="case.mask.window is not None and case.mask.causal is None",
            reason="a window without causal",
            refuses=lambda case: case.mask.window is not None and case.mask.causal is None,
        )
    )


def _alignments(notebook: Notebook, words: Words) -> None:
    found = []
    asked: dict[str, tuple[Words, Words]] = {
        "top-left": (words, {"window_align": "bottom-right"}),
        "bottom-right": (words | {"window_align": "bottom-right"}, {"window_align": None}),
    }
    for name, (case, other) in asked.items():
        seen = notebook.seen(case, {"other": other, "without": {"window": None, "window_align": None}})
        if notebook.verdict(seen) == "right":
            found.append(name)
    if found and found != ["top-left"]:
        notebook.infer(
            "supports",
            "window_alignments",
            tuple(found),
            "windows without causal, where rows and keys differ in number",
        )
