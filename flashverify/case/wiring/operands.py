"""q, k, v and dO of a problem in the arrangements of kernels over whole tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.wiring.rows import cumulative, flat

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

__all__ = ["Batched", "Varlen", "as_batched", "as_varlen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batched:
    """Sequences of one length, rows before heads.

    Args:
        q: `[B, Sq, Hq, D]`.
        k: `[B, Sk, Hkv, D]`.
        v: `[B, Sk, Hkv, Dv]`.
        do: `[B, Sq, Hq, Dv]`; None without a backward.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Varlen:
    """Sequences of any length one after the other, also empty ones. What lies behind the last one is no part of the problem.

    Args:
        q: `[T, Hq, D]`, T rows of all sequences and of the padding.
        k: `[Tk, Hkv, D]`.
        v: `[Tk, Hkv, Dv]`.
        do: `[T, Hq, Dv]`; None without a backward.
        cu_seqlens_q: `[n + 1]` int32, where the rows of each sequence begin.
        cu_seqlens_k: `[n + 1]` int32, likewise of keys.
        max_seqlen_q: rows of the longest sequence or more.
        max_seqlen_k: keys of the longest sequence or more.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor | None
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    max_seqlen_q: int
    max_seqlen_k: int


def as_batched(problem: Problem) -> Batched:
    """Views of the problem's tensors."""
    do = problem.do
    return Batched(
        q=problem.q.transpose(1, 2),
        k=problem.k.transpose(1, 2),
        v=problem.v.transpose(1, 2),
        do=None if do is None else do.transpose(1, 2),
    )


def as_varlen(problem: Problem) -> Varlen:
    """Views where the strides allow them, else guarded copies."""
    do = problem.do
    return Varlen(
        q=flat(problem, problem.q, "row", "q"),
        k=flat(problem, problem.k, "key", "k"),
        v=flat(problem, problem.v, "key", "v"),
        do=None if do is None else flat(problem, do, "row", "do"),
        cu_seqlens_q=cumulative(problem, "row"),
        cu_seqlens_k=cumulative(problem, "key"),
        max_seqlen_q=problem.max_q,
        max_seqlen_k=problem.max_k,
    )
