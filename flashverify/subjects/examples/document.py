"""The kernels of a published walk-through as a subject, and the same with every masked load filled with 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flashverify.subjects.evidence import evidence_on
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form

__all__ = ["DOCUMENT", "DOCUMENT_FILLED", "Document"]

_BLOCK = 32


def _refusal(case: Case) -> str | None:
    """One sequence, as many keys as queries, a head dim that is a tile's width."""
    if case.batch != 1:
        return f"batch={case.batch}: the tensors are [SEQ, heads, dim]"
    if case.seq_q != case.seq_k:
        return f"seq_q={case.seq_q}, seq_k={case.seq_k}: there is one SEQ"
    if case.dim_qk & (case.dim_qk - 1) or case.dim_qk < 16:
        return f"dim_qk={case.dim_qk}: not a power of two from 16"
    return None


class Document:
    """Three kernels over `[SEQ, heads, dim]`, without a mask, delta computed beforehand.

    Args:
        name: in reports.
        filled: whether masked loads are filled with 0.
    """

    supports = Supports(
        dtypes=("fp16", "bf16"),
        gqa=False,
        dim_multiple=16,
        dim_max=128,
        equal_dims=True,
        layouts=("bshd",),
        gaps=False,
        expand=False,
        scales=("positive", "zero", "negative"),
        also=_refusal,
    )
    contract = Contract(lse_base="2", deterministic=True, reads_outputs=True)

    def __init__(self, name: str, *, filled: bool) -> None:
        self.name = name
        self._filled = filled

    def form(self, case: Case) -> Form:  # noqa: ARG002
        """The scale multiplies dS before it is rounded; the product of a logit may be contracted."""
        from flashverify.numerics.form import Form

        return Form(gap_c=1.0, kappa=2.0, lse_base="2", scale_ds="before", max_source="apart", block_n=_BLOCK)

    def device(self) -> str:
        """Where triton was imported to interpret, the CPU."""
        import triton

        return "cpu" if triton.knobs.runtime.interpret else "cuda"

    def evidence(self) -> str:
        """The GPU, or the interpreter."""
        return evidence_on(self.device(), triton=True)

    def forward(self, problem: Problem) -> Forward:
        """O and the base-2 LSE."""
        import torch
        import triton

        from flashverify.subjects.examples.document_kernels import fwd_kernel

        q, k, v = (x[0].transpose(0, 1) for x in (problem.q, problem.k, problem.v))
        seq, heads, _ = q.shape
        o = torch.empty_like(q, memory_format=torch.contiguous_format)
        lse = torch.empty(heads, seq, dtype=torch.float32, device=q.device)
        scale_log2 = problem.scale * math.log2(math.e)
        fwd_kernel[(triton.cdiv(seq, _BLOCK), heads)](q, k, v, o, lse, scale_log2, seq, **self._constants(q))
        return Forward(o.transpose(0, 1)[None], lse[None], (q, k, v, o, lse))

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """The gradients."""
        import torch
        import triton

        from flashverify.subjects.examples.document_kernels import bwd_dk_dv_kernel, bwd_dq_kernel

        q, k, v, o, lse = forward.saved
        assert problem.do is not None
        do = problem.do[0].transpose(0, 1).contiguous()
        seq, heads, _ = q.shape
        delta = (o.float() * do.float()).sum(-1).transpose(0, 1).contiguous()
        dq, dk, dv = (torch.empty_like(o) for _ in range(3))
        grid = (triton.cdiv(seq, _BLOCK), heads)
        rest = (lse, delta, problem.scale, problem.scale * math.log2(math.e), seq)
        bwd_dq_kernel[grid](q, k, v, do, dq, *rest, **self._constants(q))
        bwd_dk_dv_kernel[grid](q, k, v, do, dk, dv, *rest, **self._constants(q))
        dq, dk, dv = (x.transpose(0, 1)[None] for x in (dq, dk, dv))
        return Gradients(dq, dk, dv, delta[None])

    def _constants(self, q: Any) -> dict[str, Any]:
        import torch
        import triton.language as tl

        return {
            "HEAD_NUM": q.shape[1],
            "HEAD_DIM": q.shape[2],
            "BLOCK_M": _BLOCK,
            "BLOCK_N": _BLOCK,
            "DTYPE": tl.float16 if q.dtype == torch.float16 else tl.bfloat16,
            "FILLED": self._filled,
        }


DOCUMENT = Document("seed-document", filled=False)
DOCUMENT_FILLED = Document("seed-document-filled", filled=True)
