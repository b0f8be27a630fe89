"""SGLang's Triton attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import rows_end_at_keys, triton_form
from flashverify.gallery.partials import halves
from flashverify.gallery.place import modules_of
from flashverify.numerics.form import Form
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

module = modules_of(release("sglang"))
prefill_attention = module("sglang.kernels.ops.attention.prefill_attention")
decode_attention = module("sglang.kernels.ops.attention.decode_attention")
extend_attention = module("sglang.kernels.ops.attention.extend_attention")
merge_state = module("sglang.kernels.ops.attention.merge_state")


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
    (rows, heads, _), dim_v = x.q.shape, x.v_buffer.shape[-1]
    o = x.q.new_empty(rows, heads, dim_v)
    partial = torch.empty(rows, heads, 4, dim_v, dtype=torch.float32, device=x.q.device)
    partial_lse = torch.empty(rows, heads, 4, dtype=torch.float32, device=x.q.device)
    splits = torch.full((rows,), 4, dtype=torch.int32, device=x.q.device)
    decode_attention.decode_attention_fwd(
        *(
            x.q,
            x.k_buffer,
            x.v_buffer,
            o,
            x.kv_indptr,
            x.kv_indices,
            partial,
            partial_lse,
            splits,
            4,
            p.scale,
            1.0,
            1.0,
        ),
        logit_cap=p.softcap or 0.0,
        sinks=p.sink,
    )
    return p.outputs(o, layout="thd")


@subject(
    supports=Supports(masks=("key_lengths",), backward=False),
    contract=Contract(padding="undefined", empty_row_o=None, empty_row_lse=None),
    form=lambda case: Form(n_splits=2, partial_dtype=case.dtype, partial_lse_base="e"),
)
def merge(p: Problem) -> Any:
    o, lse = merge_state.merge_state_triton(*halves(p))
    shape = (p.case.batch, p.case.seq_q, p.case.heads_q)
    return p.outputs(o.view(*shape, -1), lse.view(shape), "bshd", "bsh")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal", "packed"),
        required_masks=("causal",),
        causal=("bottom-right",),
        logits=("softcap", "sink"),
        also=rows_end_at_keys,
        backward=False,
    ),
    contract=Contract(lse_base=None, padding="undefined"),
    form=triton_form(),
)
def extend(p: Problem) -> Any:
    x = p.varlen()
    o = x.q.new_empty(*x.q.shape[:2], x.v.shape[-1])
    cached = (x.cu_seqlens_k.diff() - x.cu_seqlens_q.diff()).tolist()
    starts, ends = x.cu_seqlens_k[:-1].tolist(), x.cu_seqlens_k[1:].tolist()
    old = torch.cat([torch.arange(s, s + n) for s, n in zip(starts, cached, strict=True)]).to(x.q.device)
    new = torch.cat([torch.arange(s + n, e) for s, n, e in zip(starts, cached, ends, strict=True)]).to(x.q.device)
    kv_indptr = torch.tensor([0, *cached], dtype=torch.int32, device=x.q.device).cumsum(0, dtype=torch.int32)
    extend_attention.extend_attention_fwd(
        *(
            x.q,
            x.k[new],
            x.v[new],
            o,
            x.k,
            x.v,
            x.cu_seqlens_q,
            kv_indptr,
            old,
            None,
            True,
            None,
            x.max_seqlen_q,
            1.0,
            1.0,
        ),
        sm_scale=p.scale,
        logit_cap=p.softcap or 0.0,
        sinks=p.sink,
    )
    return p.outputs(o, layout="thd")
