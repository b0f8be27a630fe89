"""FlashAttention's Triton kernels for AMD GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import alibi_under_causal, triton_form
from flashverify.gallery.place import modules_of
from flashverify.launching.pretend import pretend_cuda
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

with pretend_cuda((9, 0)):
    prefill = modules_of(release("flash_attn"))("flash_attn.flash_attn_triton_amd.fwd_prefill")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal",),
        causal=("bottom-right",),
        logits=("alibi",),
        equal_dims=True,
        also=alibi_under_causal,
        backward=False,
    ),
    contract=Contract(empty_row_lse=0.0),
    form=triton_form(),
    pretend_cuda=(9, 0),
)
def amd(p: Problem) -> Any:
    x = p.bshd()
    o = torch.empty_like(x.q)
    slopes = None if p.slopes is None else p.slopes.expand(p.case.batch, -1)
    sizes = (None, None, p.max_q, p.max_k, None, None, 0.0, None, None, False, True, None, None, None, None)
    lse, *_ = prefill.attention_prefill_forward_triton_impl(
        x.q, x.k, x.v, o, p.scale, slopes, p.causal is not None, None, "bshd", *sizes
    )
    return p.outputs(o, lse, "bshd", "bhs")
