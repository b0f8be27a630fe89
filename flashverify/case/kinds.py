"""Kinds of cases: what a compiled kernel is compiled anew for. Random cases would be one compilation each; a finite list is not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import TYPE_CHECKING

from flashverify.case.draws import all_parts

if TYPE_CHECKING:
    from flashverify.case.supports import Supports

__all__ = ["Kind", "list_kinds"]

_UNALIGNED_EVERY = 4
_LAUNCH_EVERY = 6


@dataclass(frozen=True, slots=True)
class Kind:
    """One compilation: everything that a kernel may be specialised on, sizes and strides apart."""

    dims: tuple[int, int]
    dtype: str
    precision: str
    parts: frozenset[str]
    aligned: bool
    launch: tuple[tuple[str, int], ...]


def list_kinds(
    supports: Supports, dims: list[tuple[int, int]], formats: list[tuple[str, str]], count: int
) -> tuple[Kind, ...]:
    """At most `count` different kinds, spread over all combinations of dims, format and mask parts.

    The combinations are walked in steps of the golden section, so that any stretch of them holds every value of every axis and
    most pairs. Every fourth kind is unaligned, every sixth has launch parameters.

    Args:
        supports: what the subject declares.
        dims: (dim_qk, dim_v) to choose from.
        formats: (dtype, precision) to choose from.
        count: how many.
    """
    combinations = list(product(dict.fromkeys(dims), formats, all_parts(supports)))
    step = next(
        s for s in range(round(0.618 * len(combinations)) or 1, 2 * len(combinations)) if gcd(s, len(combinations)) == 1
    )
    kinds: dict[Kind, None] = {}
    for i in range(count):
        pair, (dtype, precision), parts = combinations[i * step % len(combinations)]
        aligned = not supports.unaligned or i % _UNALIGNED_EVERY != _UNALIGNED_EVERY - 1
        launch = _launch(supports, i // _LAUNCH_EVERY) if i % _LAUNCH_EVERY == _LAUNCH_EVERY - 1 else ()
        kinds.setdefault(Kind(pair, dtype, precision, parts, aligned, launch))
    return tuple(kinds)


def _launch(supports: Supports, turn: int) -> tuple[tuple[str, int], ...]:
    """The `turn`-th combination of the launch parameters."""
    chosen = []
    for name, values in supports.launch:
        chosen.append((name, values[turn % len(values)]))
        turn //= len(values)
    return tuple(sorted(chosen))
