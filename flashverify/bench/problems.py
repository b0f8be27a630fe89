"""The tensors that are timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.case import Case, Grad
from flashverify.case.masks.mask import Mask
from flashverify.case.problem import Problem
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from flashverify.bench.records import Workload

__all__ = ["case_of", "problem_of"]


def case_of(workload: Workload) -> Case:
    """The workload as a case; only its sizes and its mask count."""
    mask = Mask(
        causal=("top-left" if workload.seq_q == workload.seq_k else "bottom-right") if workload.causal else None
    )
    return Case(
        batch=workload.batch,
        heads_q=workload.heads_q,
        heads_kv=workload.heads_kv,
        seq_q=workload.seq_q,
        seq_k=workload.seq_k,
        dim_qk=workload.dim,
        dim_v=workload.dim,
        dtype=workload.dtype,
        mask=mask,
        grad=Grad(backward=workload.direction == "backward"),
    )


def problem_of(workload: Workload, device: str) -> Problem:
    """The workload with normal values; contiguous `[B, H, S, D]` tensors, equal for every subject."""
    import torch

    backward, case = workload.direction == "backward", case_of(workload)
    dtype = FORMATS[workload.dtype].dtype
    generator = torch.Generator(device).manual_seed(0)

    def normal(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    return Problem(
        case=case,
        q=normal(case.shape_q),
        k=normal(case.shape_k),
        v=normal(case.shape_v),
        do=normal(case.shape_o) if backward else None,
        dlse=None,
        key_lengths=None,
    )
