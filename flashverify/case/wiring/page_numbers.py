"""The table of pages as other packages write it: page numbers one after the other, or a number per token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.handed import copied
from flashverify.case.wiring.rows import inside_first

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Pages, Problem

__all__ = ["key_counts", "page_list", "slots", "slots_list"]


def key_counts(problem: Problem) -> torch.Tensor:
    """`[B]` int32: the keys of each sequence."""
    import torch

    if problem.key_lengths is not None:
        return problem.key_lengths
    case = problem.case
    return copied("seq_lens", torch.full((case.batch,), case.seq_k, dtype=torch.int32, device=problem.q.device))


def page_list(pages: Pages, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`indptr` `[B + 1]`, `indices` `[B n]` and `last_page_len` `[B]`, int32: sequence b has pages `indices[indptr[b]:indptr[b + 1]]`.

    Behind the last sequence lie the entries of the table that must not be followed. An empty sequence has no page, and a last
    page of length 0.

    Args:
        pages: with a table `[B, n]`.
        counts: `[B]` int32, keys of each sequence.
    """
    size = pages.k.shape[1]
    used = (counts + size - 1) // size
    order = inside_first(used, pages.table.shape[1])
    last = counts - (used - 1).clamp(min=0) * size
    return (
        copied("indptr", _from_zero(used)),
        copied("indices", pages.table.flatten().index_select(0, order)),
        copied("last_page_len", last),
    )


def slots(pages: Pages) -> torch.Tensor:
    """`[B, n page_size]` int32: the place of each key in the pool of tokens; an entry that names no page stays what it is."""
    import torch

    count, size = pages.k.shape[:2]
    table = pages.table.long()
    places = table.unsqueeze(-1) * size + torch.arange(size, device=table.device)
    named = (table >= 0) & (table < count)
    return torch.where(named.unsqueeze(-1), places, table.unsqueeze(-1)).flatten(1).int()


def slots_list(table: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`kv_indptr` `[B + 1]` and `kv_indices` `[B n page_size]`, int32; behind the last sequence lie the other entries.

    Args:
        table: what `slots` returned.
        counts: `[B]` int32, keys of each sequence.
    """
    order = inside_first(counts, table.shape[1])
    return copied("kv_indptr", _from_zero(counts)), copied("kv_indices", table.flatten().index_select(0, order))


def _from_zero(counts: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
