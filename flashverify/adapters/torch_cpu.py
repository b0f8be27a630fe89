"""torch's flash attention on the CPU, called through the aten op that returns LSE: an implementation that others wrote.

What it is, read off the op itself:

* Its 16-bit exponential is a cubic in the exponent's fraction: relative error up to 1.9e3 u (u = 2^-24); the fp32 one stays
  within its documented 20 ulp.
* It dies with SIGFPE on an empty sequence, so empty sequences are not supported.
* With a causal mask it multiplies the masked -inf by the scale: NaN for scale = 0, +inf for scale < 0. Under a causal mask
  only positive scales are supported; `tests/subjects` shows the defect.
* Its gradients are sums over tiles in the input dtype, each with a rounding of its own; the scale is the alpha of their products, which
  multiplies one operand in fp32, dS, or K and Q: with a scale of 1e-30 that product is subnormal, with one of 1e4 it may be infinite. `torch.addmm`
  alone shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.subjects.evidence import evidence_on
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form

__all__ = ["TORCH_CPU", "TorchCpu"]

EXP_ERROR_16_BIT = 2000.0
"""Relative error of the 16-bit exponential in units of 2^-24; 1.87e3 was the largest over 1.6 million exponents."""

EXP_ERROR_FP32 = 40.0
"""20 ulp, the documented error of the vectorised exponential."""


def _scale_is_wrong(case: Case) -> str | None:
    """Why the op computes something else with the scale of `case`, or None."""
    scale = case.softmax_scale
    if case.mask.causal is not None and scale <= 0:
        return f"causal with scale={scale}: the op multiplies its masked -inf by the scale"
    if 0 < abs(scale) < 2.0**-126:
        return f"scale={scale}: it is subnormal in fp32, and the op's products with it lose bits"
    return None


class TorchCpu:
    """`aten::_scaled_dot_product_flash_attention_for_cpu` and its backward."""

    name = "torch-cpu"
    supports = Supports(
        masks=("causal",),
        causal=("top-left",),
        equal_dims=True,
        scales=("positive", "zero", "negative"),
        gqa=False,
        also=_scale_is_wrong,
    )
    contract = Contract(lse_base="e", empty_row_lse=0.0, reads_outputs=True)

    def form(self, case: Case) -> Form:
        """Its own exponential; every gradient accumulated over tiles in the input dtype."""
        from flashverify.numerics.form import Form

        return Form(
            exp="poly",
            exp_eps=EXP_ERROR_FP32 if case.dtype == "fp32" else EXP_ERROR_16_BIT,
            grad_accum=case.dtype,
            grad_accum_of="all",
            scale_ds="operand",
            architecture="ieee",
        )

    def device(self) -> str:
        """Always `cpu`."""
        return "cpu"

    def evidence(self) -> str:
        """Always `cpu`."""
        return evidence_on("cpu", triton=False)

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        import torch

        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        o, lse = op(problem.q, problem.k, problem.v, 0.0, problem.causal is not None, scale=problem.scale)
        return Forward(o, lse)

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """The gradients, from the op's own backward."""
        import torch

        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        causal = problem.causal is not None
        q, k, v = problem.q, problem.k, problem.v
        dq, dk, dv = op(problem.do, q, k, v, forward.o, forward.lse, 0.0, causal, scale=problem.scale)
        return Gradients(dq, dk, dv)


TORCH_CPU = TorchCpu()
