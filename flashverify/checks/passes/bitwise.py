"""Bitwise comparison of two passes: -0 equals +0, every NaN equals every NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.transfers import any_of
from flashverify.checks.passes.comparing import compares

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["first_difference", "first_differences"]


Difference = tuple[tuple[int, ...], str]
"""The index of an element, and both values in words."""


def first_difference(a: torch.Tensor, b: torch.Tensor, ignore: torch.Tensor | None = None) -> Difference | None:
    """Index and description of the first element in which `a` and `b` differ, or None; None in a rehearsal.

    Args:
        a: any float dtype.
        b: same shape and dtype.
        ignore: bool, broadcasts: elements that are not compared.
    """
    return first_differences([(a, b, ignore)])[0]


def first_differences(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]],
) -> list[Difference | None]:
    """`first_difference` of each pair; a GPU is waited for once.

    Args:
        pairs: a, b and ignore of each.
    """
    if not compares():
        return [None] * len(pairs)
    unequal = _unequal(pairs)
    masks, found = [_different(*pairs[n]) for n in unequal], list[Difference | None]([None] * len(pairs))
    for n, mask, flag in zip(unequal, masks, any_of(masks), strict=True):
        if flag:
            found[n] = _described(mask, *pairs[n][:2])
    return found


def _unequal(pairs: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]) -> list[int]:
    """The pairs that may differ. Of a GPU, which would be waited for at each, all or none: where no bit does, none of them."""
    there = [n for n, (a, _, _) in enumerate(pairs) if a.is_cuda]
    if there and not any(any_of([_bits(pairs[n][0]) != _bits(pairs[n][1]) for n in there])):
        there = []
    return sorted((*there, *(n for n, (a, b, _) in enumerate(pairs) if not a.is_cuda and not a.equal(b))))


def _bits(x: torch.Tensor) -> torch.Tensor:
    import torch

    return x.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def _different(a: torch.Tensor, b: torch.Tensor, ignore: torch.Tensor | None) -> torch.Tensor:
    different = (a != b) & ((a == a) | (b == b))  # a NaN is not itself
    return different if ignore is None else different & ~ignore


def _described(different: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Difference:
    index = tuple(int(i) for i in different.nonzero()[0])
    return (
        index,
        f"{float(a[index]):.9g} against {float(b[index]):.9g}, {int(different.sum())} of {a.numel()} elements differ",
    )
