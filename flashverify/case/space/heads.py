"""Batches and numbers of heads to draw from."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flashverify.case.supports_checks import group_choices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.case.space.profiles import Profile
    from flashverify.case.supports import Supports

    Heads = tuple[int, int, int]

__all__ = ["all_head_choices", "head_choices"]

_GROUPS = (1, 2, 3, 4, 6, 8)
"""Group sizes of a subject that has declared numbers of heads and any group."""
_WIDE = 20
"""One case in so many has a large group of query heads."""
_FEW = 3
"""Numbers of heads of a range that are all beyond the profile."""


def head_choices(supports: Supports, profile: Profile) -> list[Heads]:
    """(batch, heads_q, heads_kv) that the subject has, from plain to wild; every number of a declared list is among them.

    Args:
        supports: what the subject declares.
        profile: how large the cases may be; the smallest declared numbers may exceed it.
    """
    groups = group_choices(supports)
    if supports.heads_q is None:
        found = [heads for heads in profile.heads if not groups or heads[1] // heads[2] in groups]
        if supports.heads_kv is not None:
            found = _with_kv(found, supports.heads_kv)
        met = {heads_q // heads_kv for _, heads_q, heads_kv in found}
        least = 1 if supports.heads_kv is None else supports.heads_kv[0]
        return found + [(1, size * least, least) for size in groups if size not in met]
    most = max(batch * heads_q for batch, heads_q, _ in profile.heads)
    declared = supports.heads_q
    usable = (n for n in declared if any(n % size == 0 for size in groups or (1,)))
    if isinstance(declared, range):
        numbers = [n for n in islice(usable, 64) if n <= most] or list(
            islice((n for n in declared if any(n % size == 0 for size in groups or (1,))), _FEW)
        )
    else:
        numbers = list(usable)
    choices = sorted({each for n in numbers for each in _of(n, groups, most)}, key=lambda each: each[0] * each[1])
    if supports.heads_kv is not None:
        choices = [each for each in choices if each[2] in supports.heads_kv]
    light = choices[0][1] * 2
    return [each for each in choices if each[0] * each[1] <= light] * 2 + choices


def all_head_choices(supports: Supports, profile: Profile) -> list[Heads]:
    """Those of `head_choices`, and behind them large groups, which are one draw in twenty; none of these for declared numbers of heads.

    Args:
        supports: what the subject declares.
        profile: how large the cases may be.
    """
    usual, groups = head_choices(supports, profile), supports.group_sizes
    if supports.heads_q is not None or not supports.gqa:
        return usual
    wide = [heads for heads in profile.wide_heads if groups is None or heads[1] // heads[2] in groups]
    if supports.heads_kv is not None:
        wide = [heads for heads in wide if heads[2] in supports.heads_kv]
    times = -(-len(wide) * (_WIDE - 1) // len(usual)) if wide and usual else 1
    return usual * times + wide


def _with_kv(choices: list[Heads], numbers: Sequence[int]) -> list[Heads]:
    """Those with declared numbers of kv heads; where there is none, their groups with the smallest declared number."""
    fitting = [heads for heads in choices if heads[2] in numbers]
    return fitting or [(batch, heads_q // heads_kv * numbers[0], numbers[0]) for batch, heads_q, heads_kv in choices]


def _of(heads_q: int, groups: list[int], most: int) -> Iterator[Heads]:
    """Batches and groups of a number of query heads."""
    for size in groups or (*_GROUPS, heads_q):
        if heads_q % size == 0:
            yield from (
                (batch, heads_q, heads_q // size) for batch in (1, 2, 3) if batch == 1 or batch * heads_q <= most
            )
