"""Chosen values in the memory layout of a case: of plain tensors, of heads that share memory, and of pools of pages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.case.memory.paging import page_table

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Pages, Problem

__all__ = ["like", "paged", "widened", "with_v"]


def with_v(problem: Problem, v: torch.Tensor) -> Problem:
    """The problem with another v, everything else as it is; keys behind the declared lengths have theirs too.

    Args:
        problem: whose K and V lie apart and are no codes.
        v: broadcastable to `[B, Hkv, Sk, Dv]`.
    """
    pages = problem.pages
    if pages is not None:
        pages = dataclasses.replace(pages, v=paged(problem, pages, pages.v, v))
    return dataclasses.replace(problem, v=like(problem.v, v), pages=pages)


def widened(v: torch.Tensor, case: Case) -> torch.Tensor:
    """K whose first channels are V `[..., Dv or 1]` and whose others are 0: of any K the logits of a q of 0 are 0."""
    import torch

    wide = v.expand(*v.shape[:-1], case.dim_v)
    return torch.nn.functional.pad(wide, (0, case.dim_qk - case.dim_v))


def like(tensor: torch.Tensor, values: torch.Tensor | None) -> torch.Tensor:
    """`values`, or 0, in new memory of the strides and the alignment of `tensor`; heads that share memory get those of the first."""
    import torch

    shift = tensor.data_ptr() % 16 // tensor.element_size()
    strides = tensor.stride()
    if tensor.dim() == 4 and strides[3] == 0:  # one element for all, as an expanded dO has
        strides = torch.empty(tensor.shape, device="meta").stride()
    own = [1 if stride == 0 else size for size, stride in zip(tensor.shape, strides, strict=True)]
    span = 1 + sum((size - 1) * stride for size, stride in zip(own, strides, strict=True)) if tensor.numel() else 0
    memory = torch.zeros(span + shift, dtype=tensor.dtype, device=tensor.device)
    view = memory.as_strided(own, strides, shift)
    if values is not None and tensor.numel():
        wide = values.expand(tensor.shape)
        view.copy_(wide[tuple(slice(0, size) for size in own)])
    return view.expand(tensor.shape)


def paged(problem: Problem, pages: Pages, pool: torch.Tensor, values: torch.Tensor | None) -> torch.Tensor:
    """A pool of pages that holds `values` `[B, Hkv, Sk, dim]` in the pages that a sequence may see, and 0 in all others."""
    import torch

    case, size = problem.case, pool.shape[1]
    if values is None:
        return like(pool, None)
    full = (case.batch, case.heads_kv, case.seq_k, pool.shape[3])
    wide, filled = values.expand(full), torch.zeros(pool.shape, dtype=torch.float64, device=pool.device)
    table = page_table(case, case.storage.padding)
    for b, (first, used) in enumerate(zip(table.first, table.used, strict=True)):
        rows = wide[b, :, first * size : used * size].transpose(0, 1).double()
        whole = torch.nn.functional.pad(rows, (0, 0, 0, 0, 0, (used - first) * size - len(rows)))
        filled[pages.table[b, first:used].long()] = whole.view(used - first, size, *whole.shape[1:])
    return like(pool, filled)
