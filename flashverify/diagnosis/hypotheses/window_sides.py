"""Wrong semantics of the sides of a window: exchanged, measured from elsewhere, or both off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Side = int | None
    Sides = Callable[[Side, Side], Iterator[tuple[Side, Side, str]]]

__all__ = ["WINDOW_SIDES"]


def _sides(change: Sides) -> Callable[[Scene], Iterator[Alternative]]:
    """The window with other sides, a function of the declared ones."""

    def build(scene: Scene) -> Iterator[Alternative]:
        window = scene.case.mask.window
        if window is None:
            return
        j, position = _numbers(scene)
        for left, right, detail in change(*window):
            part = {
                "left": None if left is None else j >= position - left,
                "right": None if right is None else j <= position + right,
            }
            if (left, right) != tuple(window):
                yield Alternative(inputs=with_parts(scene, **part), detail=detail)

    return build


def _numbers(scene: Scene) -> tuple[Tensor, Tensor]:
    at = scene.at
    return at.key[:, None, None, :], (at.row + at.shift)[:, None, :, None]


def _exchanged(scene: Scene) -> Iterator[Alternative]:
    """Left for right, with a causal mask for a right side of 0: a kernel that joins the two exchanges them so."""
    yield from _sides(lambda left, right: iter([(right, left, "")]))(scene)
    window, causal = scene.case.mask.window, scene.case.mask.causal
    if window is None or causal is None or window[0] is None:
        return
    j, position = _numbers(scene)
    right = 0 if window[1] is None else min(window[1], 0)
    farthest = int(position.max()) if position.numel() else 0
    # a side that hides nothing may be cut to one that does so too
    for left in dict.fromkeys((window[0], min(window[0], farthest))):
        part = {"left": j >= position - right, "right": j <= position + left, "causal": None}
        yield Alternative(inputs=with_parts(scene, **part), detail="the causal mask is a right side of 0")


def _both(by: int) -> Sides:
    def change(left: Side, right: Side) -> Iterator[tuple[Side, Side, str]]:
        if left is not None and right is not None:
            yield left + by, right + by, ""

    return change


def _one_for_both(left: Side, right: Side) -> Iterator[tuple[Side, Side, str]]:
    yield left, left, "the left one"
    yield right, right, "the right one"


def _causal(left: Side, right: Side) -> Iterator[tuple[Side, Side, str]]:
    if left is not None and right != 0:
        yield left, 0, ""


def _split(left: Side, right: Side) -> Iterator[tuple[Side, Side, str]]:
    """A width that is taken for half of it, or for twice it."""
    for name, (mine, theirs) in {"left": (left, right), "right": (right, left)}.items():
        if mine is not None:
            for number, words in ((mine // 2, "half"), (2 * mine, "twice")):
                yield (
                    (number, theirs, f"the {name} one {words}")
                    if name == "left"
                    else (
                        theirs,
                        number,
                        f"the {name} one {words}",
                    )
                )


def _of_last_row(scene: Scene) -> Iterator[Alternative]:
    """The left side is measured from the position of the last row, as in a decoding step."""
    left, _ = scene.case.mask.window or (None, None)
    if left is not None and scene.case.seq_q > 1:
        at = scene.at
        end = (at.rows - 1 + at.shift)[:, None, :, None]
        j = at.key[:, None, None, :]
        yield Alternative(inputs=with_parts(scene, left=j >= end - left), detail="from the last row")
        keys = at.keys[:, None, :, None]
        yield Alternative(inputs=with_parts(scene, left=j >= keys - 1 - left), detail="from the last key")


def _of_first_row(scene: Scene) -> Iterator[Alternative]:
    left, right = scene.case.mask.window or (None, None)
    if scene.case.seq_q > 1:
        j, start = scene.at.key[:, None, None, :], scene.at.shift[:, None, :, None]
        if left is not None:
            yield Alternative(inputs=with_parts(scene, left=j >= start - left), detail="the left side")
        if right is not None:
            yield Alternative(inputs=with_parts(scene, right=j <= start + right), detail="the right side")


def _by_tiles(scene: Scene) -> Iterator[Alternative]:
    """Keys before the window are hidden by whole tiles only."""
    left, _ = scene.case.mask.window or (None, None)
    if left is None:
        return
    j, position = _numbers(scene)
    for size in TILES:
        if size < 2 * scene.case.seq_k:
            begin = (position - left).clamp(min=0) // size * size
            yield Alternative(inputs=with_parts(scene, left=j >= begin), detail=f"of {size} keys")


WINDOW_SIDES = (
    Semantics(
        name="window-sides-exchanged",
        sentence="the two sides of the window are exchanged",
        build=_exchanged,
    ),
    Semantics(
        name="window-one-side-for-both", sentence="one side of the window counts for both", build=_sides(_one_for_both)
    ),
    Semantics(
        name="window-left-makes-causal",
        sentence="a window with a left side hides all keys after a row's own, whatever its right side is",
        build=_sides(_causal),
    ),
    Semantics(
        name="window-one-narrower", sentence="the window is one key narrower on both sides", build=_sides(_both(-1))
    ),
    Semantics(name="window-one-wider", sentence="the window is one key wider on both sides", build=_sides(_both(1))),
    Semantics(
        name="window-half-or-twice",
        sentence="a side of the window is half as wide, or twice as wide, as declared",
        build=_sides(_split),
        one_way=True,
    ),
    Semantics(
        name="window-left-of-last-row",
        sentence="the left side of the window is measured from the end of the sequence, for all rows alike",
        build=_of_last_row,
        one_way=True,
    ),
    Semantics(
        name="window-of-first-row",
        sentence="the window of all rows is that of the first one",
        build=_of_first_row,
        one_way=True,
    ),
    Semantics(
        name="window-left-by-tiles",
        sentence="keys before the window are hidden by whole tiles only",
        build=_by_tiles,
    ),
)
