"""SGLang's Triton attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flashverify.adapters import merge_state
from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import triton_form
from flashverify.gallery.place import modules_of
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

module = modules_of(release("sglang"))
prefill_attention = module("sglang.kernels.ops.attention.prefill_attention")
decode_attention = module("sglang.kernels.ops.attention.decode_attention")
merges = module("sglang.kernels.ops.attention.merge_state")


@subject(
    supports=Supports(precisions=("tf32",), masks=("causal", "packed"), square=True, equal_dims=True, backward=False),
    contract=Contract(lse_base=None, padding="undefined"),
    form=triton_form(normalise="every_block"),
)
def prefill(p: Problem) -> Any:
    x = p.varlen()
    o = torch.empty_like(x.q)
    lengths = (x.cu_seqlens_q[:-1], x.cu_seqlens_q.diff(), x.max_seqlen_q)
    prefill_attention.context_attention_fwd(x.q, x.k, x.v, o, *lengths, p.causal is not None, p.scale)
    return p.outputs(o, layout="thd")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("key_lengths",),
        logits=("softcap", "sink"),
        seq_q=(1,),
        page_sizes=(1, 16),
        always_paged=True,
        backward=False,
    ),
    contract=Contract(lse_base=None, empty_row_o=None),
    form=triton_form(),
)
def decode(p: Problem) -> Any:
    x = p.paged("sglang")
    shape = (*x.q.shape[:2], 4)
    o, partial_lse = x.q.new_empty(*shape[:2], x.v_buffer.shape[-1]), x.q.new_empty(shape, dtype=torch.float32)
    partial = x.q.new_empty(*shape, x.v_buffer.shape[-1], dtype=torch.float32)
    splits = torch.full(shape[:1], 4, dtype=torch.int32, device=x.q.device)
    given = (x.q, x.k_buffer, x.v_buffer, o, x.kv_indptr, x.kv_indices, partial, partial_lse, splits, 4)
    options = {"logit_cap": p.softcap or 0.0, "sinks": p.sink}
    decode_attention.decode_attention_fwd(*given, p.scale, 1.0, 1.0, **options)
    return p.outputs(o, layout="thd")


merge = merge_state(
    merges.merge_state_triton,
    lse_base="e",
    name="merge",
    contract={"empty_row_o": None, "empty_row_lse": None, "padding": "undefined"},
)
