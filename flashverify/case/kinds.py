"""Kinds of cases: what a compiled kernel is compiled anew for. Random cases would be one compilation each; a finite list is not."""

from __future__ import annotations

from dataclasses import dataclass
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
    """At most `count` different kinds in which every value of every axis occurs, and most pairs of values.

    Each axis runs through its values at a pace of its own, so that values meet in ever new combinations.

    Args:
        supports: what the subject declares.
        dims: (dim_qk, dim_v) to choose from.
        formats: (dtype, precision) to choose from.
        count: how many.
    """
    parts = all_parts(supports)
    kinds: dict[Kind, None] = {}
    for i in range(count):
        aligned = not supports.unaligned or i % _UNALIGNED_EVERY != _UNALIGNED_EVERY - 1
        launch: tuple[tuple[str, int], ...] = ()
        if supports.launch and i % _LAUNCH_EVERY == _LAUNCH_EVERY - 1:
            turn = i // _LAUNCH_EVERY
            launch = tuple(
                sorted(
                    (name, values[turn // (axis + 1) % len(values)])
                    for axis, (name, values) in enumerate(supports.launch)
                )
            )
        dtype, precision = formats[(i + i // len(formats)) % len(formats)]
        kind = Kind(
            dims=dims[(i + i // len(dims)) % len(dims)],
            dtype=dtype,
            precision=precision,
            parts=parts[(i + i // len(parts)) % len(parts)],
            aligned=aligned,
            launch=launch,
        )
        kinds.setdefault(kind)
    return tuple(kinds)
