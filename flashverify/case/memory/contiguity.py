"""Problems for subjects that take contiguous tensors alone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.tensors import TENSORS

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

__all__ = ["made_contiguous"]


def made_contiguous(problem: Problem) -> Problem:
    """The problem with each tensor contiguous in the layout of its case; tensors that are so already stay what they are.

    Parts, permutations and extensions of a problem are views or lie in another order.
    """
    swapped = problem.case.storage.layout == "bshd"
    found: dict[str, Any] = {}
    for name, spec in TENSORS.items():
        tensor = getattr(problem, name)
        if tensor is not None:
            found[name] = _in_order(tensor, swapped=swapped and spec.dtype == "case")
    pages = problem.pages
    if pages is not None:  # `[P, page_size, Hkv, D]`: keys before heads
        k, v = (_in_order(pool, swapped=not swapped) for pool in (pages.k, pages.v))
        found["pages"] = dataclasses.replace(pages, k=k, v=v, table=pages.table.contiguous())
    return dataclasses.replace(problem, **found)


def _in_order(tensor: torch.Tensor, *, swapped: bool) -> torch.Tensor:
    """Contiguous, with the second and third axis in the other order where `swapped`."""
    if not swapped:
        return tensor.contiguous()
    turned = tensor.transpose(1, 2)
    return tensor if turned.is_contiguous() else turned.contiguous().transpose(1, 2)
