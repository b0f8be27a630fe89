"""Where the wrong pairs of a mask lie, in words: runs along the diagonal, boxes, tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashverify.xray.record import number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]

__all__ = ["Box", "boxes", "places", "tiles"]

_LISTED = 3


@dataclass(frozen=True, slots=True)
class Box:
    """Rows `top ... bottom - 1` by keys `left ... right - 1`; `full` where every pair of it is wrong."""

    top: int
    bottom: int
    left: int
    right: int
    full: bool


def boxes(wrong: Bools, rows: int = 1, keys: int = 1) -> list[Box]:
    """Rows one after the other whose wrong keys overlap, as boxes.

    Args:
        wrong: `[row cells, key cells]`.
        rows: rows per cell.
        keys: keys per cell.
    """
    present = np.flatnonzero(wrong.any(1))
    first, last = wrong.argmax(1), wrong.shape[1] - 1 - wrong[:, ::-1].argmax(1)
    found: list[list[int]] = []
    for row in present.tolist():
        a, b = int(first[row]), int(last[row]) + 1
        if found and found[-1][1] == row and a < found[-1][3] and found[-1][2] < b:
            box = found[-1]
            box[1], box[2], box[3] = row + 1, min(box[2], a), max(box[3], b)
        else:
            found.append([row, row + 1, a, b])
    return [
        Box(t * rows, b * rows, left * keys, right * keys, bool(wrong[t:b, left:right].all()))
        for t, b, left, right in found
    ]


def places(wrong: Bools, rows: int = 1, keys: int = 1, first_key: int = 0) -> str:
    """Where the pairs are, for a sentence that begins with how many there are; the keys are counted from `first_key`."""
    present = np.flatnonzero(wrong.any(1))
    diagonal = _diagonal(wrong, present) if rows == keys == 1 and len(present) > 1 else None
    if diagonal is not None:
        a, b = diagonal[0] + first_key, diagonal[1] + first_key
        which = f"row i and key {_offset(a)}" if a == b else f"row i and keys {_offset(a)} to {_offset(b)}"
        return f"{which}, {_range('row', int(present[0]), int(present[-1]) + 1)}"
    found = boxes(wrong, rows, keys)
    listed = [
        f"{_range('row', x.top, x.bottom)} with {_range('key', x.left + first_key, x.right + first_key)}"
        for x in found[:_LISTED]
    ]
    more = f"; and {number(len(found) - _LISTED, 'more place')}" if len(found) > _LISTED else ""
    return "; ".join(listed) + more


def tiles(wrong: Bools, rows: int = 1, keys: int = 1) -> str:
    """The tiles that the pairs fill exactly, or an empty text where they fill none."""
    found = boxes(wrong, rows, keys)
    sizes = {(x.bottom - x.top, x.right - x.left) for x in found}
    if not all(x.full for x in found) or len(sizes) != 1:
        return ""
    height, width = sizes.pop()
    if min(height, width) < 8 or any(x.top % height or x.left % width for x in found):
        return ""
    on = " on the diagonal" if all(x.top == x.left for x in found) and height == width else ""
    return f"exactly {number(len(found), 'tile')} of {height} x {width}{on}"


def _diagonal(wrong: Bools, present: NDArray[np.intp]) -> tuple[int, int] | None:
    """(a, b) where every wrong row i is wrong in exactly the keys i + a to i + b that there are."""
    part, size = wrong[present], wrong.shape[1]
    a = _commonest(part.argmax(1) - present)
    b = _commonest(size - 1 - part[:, ::-1].argmax(1) - present)
    keys = np.arange(size)
    band = (keys >= present[:, None] + a) & (keys <= present[:, None] + b)
    return (a, b) if bool((band == part).all()) else None


def _commonest(values: NDArray[np.intp]) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()])


def _offset(a: int) -> str:
    return f"i{a:+d}" if a else "i"


def _range(noun: str, start: int, stop: int) -> str:
    return f"{noun} {start}" if stop == start + 1 else f"{noun}s {start}..{stop - 1}"
