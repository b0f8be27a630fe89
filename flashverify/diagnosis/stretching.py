"""Cases that spread a mask over many tiles: on them tiles, edges and walks that are alike on small cases differ."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.case.changes import change
from flashverify.diagnosis.grown import grown
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.trials import work
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports

__all__ = ["stretched", "with_sides"]

_SIZES = (
    ((270, 330), (256, 256), (150, 330), (110, 230), (90, 160), (13, 330), (6, 330), (0, 330)),
    ((140, 460), (128, 384), (192, 192), (90, 230), (77, 190), (11, 460), (5, 460), (0, 460)),
    ((330, 270), (320, 256), (230, 230), (128, 128), (110, 120), (9, 400), (3, 400), (0, 400)),
)
"""Rows and keys that are added, of which the first ones that a subject takes count: alike in number, more keys, more rows. Few where it has few, or many heads."""
_SIDES = ((45, 30), (100, 75), (20, 140))
"""Sides of windows that lie on no edge of a tile, one pair for each of the sizes."""
_COSTLY, _BACKWARD, _CHANNELS = 600_000, 4, 32
"""The most that a case may cost, how much more a backward does, and the channels up to which all cost as much."""
_EDGE = 64
"""Keys after which there is an edge of tiles of most sizes."""
_SHORTER = (0, 70, 37)
"""Keys by which lengths are shorter than the buffer, likewise."""


def stretched(supports: Supports, case: Case) -> Iterator[Case]:
    """Cases like `case` that `supports` accepts, each with several tiles of rows and keys, with plain values and few heads.

    A window has its own sides once, and others that reach over several tiles.
    """
    seen = {case}
    for number, (sizes, less) in enumerate(zip(_SIZES, _SHORTER, strict=True)):
        for start in _starts(case, number):
            made = (_grown(each, rows, keys, less, number) for each in _with_few_heads(start) for rows, keys in sizes)
            found = next((each for each in made if each is not None and supports.refusal(each) is None), None)
            if found is not None and found not in seen:
                seen.add(found)
                yield found


def _starts(case: Case, number: int) -> Iterator[Case]:
    """The case to be grown to sizes of that number, and with other sides of a window, another alignment, fewer splits."""
    wide = with_sides(case, _SIDES[number])
    if number == 0:
        yield case
    yield wide
    if number == 1:
        yield from _of_the_other_alignment(wide)
    for name, value in case.launch if number else ():
        if value > number + 1:
            parts = tuple((other, number + 1 if other == name else x) for other, x in case.launch)
            yield replace(wide, launch=parts)


def _with_few_heads(case: Case) -> list[Case]:
    """The case with one kv head and one sequence, if it can be, and itself."""
    found = [case]
    few: dict[str, Any] = {"heads_q": case.heads_q // case.heads_kv, "heads_kv": 1}
    for axes in (few, few | {"batch": 1}):
        smaller = grown(case, 0, 0, regime="normal", seed=0, **axes) if axes.get("batch", case.batch) else None
        if smaller is not None and case.mask.packed is None:
            found.insert(0, smaller)
    return list(dict.fromkeys(found))


def with_sides(case: Case, sides: tuple[int, int]) -> Case:
    """The case with other sides of its window, of those that it has."""
    if case.mask.window is None:
        return case
    left, right = (None if own is None else side for own, side in zip(case.mask.window, sides, strict=True))
    return replace(case, mask=replace(case.mask, window=(left, right)))


def _of_the_other_alignment(case: Case) -> Iterator[Case]:
    """The case whose last row sees the last key, where its band is counted from the first key: under few rows of many keys no window begins there."""
    mask = case.mask
    if mask.aligned_at_end or not mask.parts() & {"causal", "window"}:
        return
    if mask.causal:
        parts = ["causal"]
    elif mask.window is not None and mask.window[1] is not None:  # a causal mask would be a second right side
        parts = ["window_alignment"]
    else:
        parts = ["causal", "window_alignment"]
    for part in parts:
        with suppress(UsageError):  # beside another part there is none
            aligned: dict[str, Any] = {part: "bottom-right"}
            yield replace(case, mask=replace(mask, **aligned))


def _grown(case: Case, rows: int, keys: int, less: int, number: int) -> Case | None:
    larger = grown(case, rows, keys, regime="normal", seed=301 + 2 * number)
    if larger is None or work(larger) > LARGEST or _cost(larger) > _COSTLY:
        return None
    lengths = larger.mask.key_lengths
    if lengths and less:
        shorter = tuple(max(length - less, 1) for length in lengths)
        return change(larger, mask=replace(larger.mask, key_lengths=shorter))
    return _at_an_edge(larger) if number == 1 else larger


def _cost(case: Case) -> float:
    """Pairs of a forward with few channels that take as long."""
    return work(case) * (_BACKWARD if case.grad.backward else 1) * max(case.dim_qk, case.dim_v, _CHANNELS) / _CHANNELS


def _at_an_edge(case: Case) -> Case:
    """The case whose middle row has a window that begins at an edge of tiles, if its last row sees the last key: few rows have no edge between them else."""
    left, right = case.mask.window or (None, None)
    begin = case.seq_k - (case.seq_q + 1) // 2 - (left or 0)
    if left is None or not case.mask.aligned_at_end or case.mask.packed is not None or begin < _EDGE:
        return case
    return replace(case, mask=replace(case.mask, window=(left + begin % _EDGE, right)))
