"""PyTorch's scaled-dot-product backends on a GPU, called through the aten ops that return LSE.

All three fused backends take a causal mask with equal lengths only, return the natural LSE, and allocate their outputs in
C++, where no guard band can be put around them. Flash and cuDNN take fewer kv heads than query heads; `adapters.sdpa` calls the
same backends as users do, with masks.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from flashverify.subjects.evidence import evidence_on
from flashverify.subjects.interface import Contract, Forward, Gradients, Supports

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.numerics.form import Form

__all__ = ["SDPA_CUDNN", "SDPA_EFFICIENT", "SDPA_FLASH", "SDPA_MATH", "SdpaBackend"]

_FUSED = Supports(
    dtypes=("fp16", "bf16"),
    masks=("causal",),
    causal=("top-left",),
    rectangular_causal=False,
    gqa=False,
    dim_max=128,
    equal_dims=True,
    unaligned=False,
    expand=False,
    compiles=False,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SdpaBackend:
    """One backend: how its aten ops are called, and what it is."""

    name: str
    supports: Supports
    contract: Contract
    form_fields: dict[str, Any]
    splits: Callable[[Case], int] = lambda case: 1  # noqa: ARG005
    call_forward: Callable[[Problem], Forward]
    call_backward: Callable[[Problem, Forward], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]

    def form(self, case: Case) -> Form:
        """The declared numerical form; the splits of the keys depend on the case, and each query head's dK and dV are rounded apart."""
        from flashverify.numerics.form import Form

        partial = "fp32" if case.heads_q == case.heads_kv else "input"
        return Form(dot=case.precision, n_splits=self.splits(case), gqa_partial=partial, **self.form_fields)

    def device(self) -> str:
        """Always `cuda`."""
        return "cuda"

    def evidence(self) -> str:
        """The GPU."""
        return evidence_on("cuda")

    def forward(self, problem: Problem) -> Forward:
        """O and the natural LSE."""
        return self.call_forward(problem)

    def backward(self, problem: Problem, forward: Forward) -> Gradients:
        """The gradients, from the op's own backward."""
        return Gradients(*self.call_backward(problem, forward))


def _flash_forward(p: Problem) -> Forward:
    import torch

    op = torch.ops.aten._scaled_dot_product_flash_attention
    o, lse, *rest = op(p.q, p.k, p.v, 0.0, p.causal is not None, scale=p.scale)
    return Forward(o, lse, (o, lse, *rest))


def _flash_backward(p: Problem, f: Forward) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    o, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = f.saved
    op = torch.ops.aten._scaled_dot_product_flash_attention_backward
    causal = p.causal is not None
    result = op(p.do, p.q, p.k, p.v, o, lse, cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset, scale=p.scale)
    return result[0], result[1], result[2]


def _cudnn_forward(p: Problem) -> Forward:
    import torch

    op = torch.ops.aten._scaled_dot_product_cudnn_attention
    o, lse, *rest = op(p.q, p.k, p.v, None, True, 0.0, p.causal is not None, scale=p.scale)
    return Forward(o, lse.reshape(p.case.shape_o[:3]), (o, lse, *rest))


def _cudnn_backward(p: Problem, f: Forward) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    o, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = f.saved
    op = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    causal = p.causal is not None
    sizes = (cum_q, cum_k, max_q, max_k)
    result = op(p.do, p.q, p.k, p.v, o, lse, seed, offset, None, *sizes, 0.0, causal, scale=p.scale)
    return result[0], result[1], result[2]


def _efficient_forward(p: Problem) -> Forward:
    import torch

    op = torch.ops.aten._scaled_dot_product_efficient_attention
    o, lse, seed, offset = op(p.q, p.k, p.v, None, True, 0.0, p.causal is not None, scale=p.scale)
    return Forward(o, lse[..., : p.case.seq_q], (o, lse, seed, offset))  # LSE comes padded to a multiple of 32 rows


def _efficient_backward(p: Problem, f: Forward) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    o, lse, seed, offset = f.saved
    op = torch.ops.aten._scaled_dot_product_efficient_attention_backward
    wanted, causal = [True, True, True, False], p.causal is not None
    result = op(p.do, p.q, p.k, p.v, None, o, lse, seed, offset, 0.0, wanted, causal, scale=p.scale)
    return result[0], result[1], result[2]


def _math_forward(p: Problem) -> Forward:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    needs = p.case.grad.backward
    q, k, v = (t.detach().requires_grad_(needs) for t in (p.q, p.k, p.v))
    with sdpa_kernel([SDPBackend.MATH]), torch.set_grad_enabled(needs):
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=p.causal is not None, scale=p.scale)
    return Forward(o.detach(), None, (q, k, v, o))


def _math_backward(p: Problem, f: Forward) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    q, k, v, o = f.saved
    dq, dk, dv = torch.autograd.grad(o, (q, k, v), p.do)
    return dq, dk, dv


def _flash_splits(case: Case) -> int:
    """Splits of the keys: FlashAttention-2 splits where the query tiles alone do not fill four fifths of the multiprocessors twice over."""
    import torch

    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    rows, heads = (case.heads_q // case.heads_kv, case.heads_kv) if case.seq_q == 1 else (case.seq_q, case.heads_q)
    tiles = case.batch * heads * math.ceil(rows / 64)  # one query: those of a group become the rows of a tile
    block = 256 if case.dim_qk <= 64 else 128 if case.dim_qk <= 128 else 64
    return 1 if tiles >= 0.8 * 2 * multiprocessors else max(1, min(128, math.ceil(case.seq_k / block)))


def _cudnn_refusal(case: Case) -> str | None:
    """Why cuDNN does not take `case`, or None."""
    if case.seq_q == 1 and case.seq_k == 1:
        return "seq_q=1, seq_k=1: cuDNN refuses it"
    if 0 < abs(case.softmax_scale) < 2.0**-126:
        return f"scale={case.softmax_scale}: it is subnormal in fp32, and cuDNN returns NaN"
    return None


def _math_refusal(case: Case) -> str | None:
    """Why the math backend is left out of `case`, or None."""
    huge = any(abs(edit.value) >= 1e30 for edit in case.values.edits)
    return (
        "an element of 1e30 or more: its backward sums P * dP, and an overflow reaches the whole row" if huge else None
    )


_NATURAL = Contract(lse_base="e", reads_outputs=True)

SDPA_FLASH = SdpaBackend(
    name="sdpa-flash",
    supports=dataclasses.replace(_FUSED, gqa=True),
    contract=_NATURAL,
    form_fields={"gap_c": 3.0, "max_source": "apart"},
    splits=_flash_splits,
    call_forward=_flash_forward,
    call_backward=_flash_backward,
)
SDPA_CUDNN = SdpaBackend(
    name="sdpa-cudnn",
    # Rows with gaps are left out: the plan of one stride is reused for another, and gradients are read from the gaps.
    supports=dataclasses.replace(_FUSED, gqa=True, gaps=False, also=_cudnn_refusal),
    contract=_NATURAL,
    form_fields={"gap_c": 3.0, "scale_ds": "before"},
    call_forward=_cudnn_forward,
    call_backward=_cudnn_backward,
)
SDPA_EFFICIENT = SdpaBackend(
    name="sdpa-efficient",
    supports=_FUSED,
    contract=_NATURAL,
    form_fields={"gap_c": 3.0, "scale_ds": "before", "ds_from": "p_rounded"},
    call_forward=_efficient_forward,
    call_backward=_efficient_backward,
)
SDPA_MATH = SdpaBackend(
    name="sdpa-math",
    # Its causal mask is added to the logits: inf - inf where the logit of an invisible key overflows.
    supports=dataclasses.replace(_FUSED, dtypes=("fp32",), masks=(), also=_math_refusal),
    contract=dataclasses.replace(_NATURAL, lse_base=None),
    form_fields={"gap_c": 3.0},
    call_forward=_math_forward,
    call_backward=_math_backward,
)
