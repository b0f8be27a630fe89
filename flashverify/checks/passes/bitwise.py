"""Bitwise comparison of two passes: -0 equals +0, every NaN equals every NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.passes.comparing import compares

if TYPE_CHECKING:
    import torch

__all__ = ["first_difference"]


def first_difference(
    a: torch.Tensor, b: torch.Tensor, ignore: torch.Tensor | None = None
) -> tuple[tuple[int, ...], str] | None:
    """Index and description of the first element in which `a` and `b` differ, or None; None in a rehearsal.

    Args:
        a: any float dtype.
        b: same shape and dtype.
        ignore: bool, broadcasts: elements that are not compared.
    """
    import torch

    if not compares():
        return None
    different = ~((a == b) | (torch.isnan(a) & torch.isnan(b)))
    if ignore is not None:
        different = different & ~ignore
    if not bool(different.any()):
        return None
    index = tuple(int(i) for i in different.nonzero()[0])
    return (
        index,
        f"{float(a[index]):.9g} against {float(b[index]):.9g}, {int(different.sum())} of {a.numel()} elements differ",
    )
