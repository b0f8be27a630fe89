"""Rows and keys of a problem one after the other, as kernels for packed sequences take them, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from flashverify.case.memory.handed import copied

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

    Along = Literal["row", "key"]

__all__ = ["batched", "cumulative", "flat", "inside_first", "lengths_of", "tokens"]


def lengths_of(problem: Problem, along: Along) -> torch.Tensor | None:
    """`[B]` int32, the declared rows or keys of each sequence of a dense problem; None where all belong to it, or they are packed."""
    return problem.query_lengths if along == "row" else problem.key_lengths


def tokens(problem: Problem, along: Along) -> int:
    """Rows or keys of all sequences together, padding included."""
    case = problem.case
    return case.batch * (case.seq_q if along == "row" else case.seq_k)


def inside_first(counts: torch.Tensor, size: int) -> torch.Tensor:
    """Indices into `[B, size]` laid flat, int64: the first `counts[b]` of each row b in order, then all others.

    Args:
        counts: `[B]` integers.
        size: of a row.
    """
    import torch

    outside = torch.arange(size, device=counts.device) >= counts.view(-1, 1)
    return torch.argsort(outside.flatten().to(torch.uint8), stable=True)


def flat(problem: Problem, x: torch.Tensor, along: Along, name: str) -> torch.Tensor:
    """`[B, H, S, ...]` as `[T, H, ...]`: a view where the strides allow one, else a guarded copy.

    Declared lengths move the padding of every sequence behind the last one, with what it holds.

    Args:
        problem: that x belongs to.
        x: a tensor with an element per row or key.
        along: which of the two.
        name: of x, as damage calls it.
    """
    turned, lengths = x.transpose(1, 2), lengths_of(problem, along)
    shape = (tokens(problem, along), *turned.shape[2:])
    if lengths is not None:
        order = inside_first(lengths, turned.shape[1])
        return copied(name, turned.reshape(shape).index_select(0, order))
    try:
        return turned.view(shape)
    except RuntimeError:  # a step between sequences that no single stride of tokens makes
        return copied(name, turned.reshape(shape))


def batched(problem: Problem, x: torch.Tensor, along: Along) -> torch.Tensor:
    """`[T, ...]` as `[B, S, ...]`, where the kernel left the rows in the order of `flat`.

    Elements that nobody wrote keep the bits by which a guard knows them.
    """
    import torch

    case, lengths = problem.case, lengths_of(problem, along)
    shape = (case.batch, case.seq_q if along == "row" else case.seq_k, *x.shape[1:])
    if lengths is None:
        return x.reshape(shape)
    back = torch.argsort(inside_first(lengths, shape[1]))
    made = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return made.copy_(x.index_select(0, back)).view(shape)


def cumulative(problem: Problem, along: Along) -> torch.Tensor:
    """`[sequences + 1]` int32: where each sequence begins in `flat`, and where the last one ends."""
    import torch

    packed = problem.cu_q if along == "row" else problem.cu_k
    if packed is not None:
        return packed
    case, lengths = problem.case, lengths_of(problem, along)
    if lengths is None:
        size = case.seq_q if along == "row" else case.seq_k
        lengths = torch.full((case.batch,), size, dtype=torch.int32, device=problem.q.device)
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return copied(f"cu_seqlens of {'rows' if along == 'row' else 'keys'}", starts)
