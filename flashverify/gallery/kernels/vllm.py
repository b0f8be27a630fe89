"""vLLM's Triton attention."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from flashverify.adapters import merge_attn_states
from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import no_zero_window, rows_end_at_keys, triton_form
from flashverify.gallery.place import modules_of
from flashverify.gallery.stubs import Anything
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

platform = Anything(fp8_dtype=lambda: torch.float8_e4m3fn)
module = modules_of(
    release("vllm"),
    {
        "vllm.platforms": {"current_platform": platform},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.triton_utils": {"triton": triton, "tl": tl},
    },
)
prefill_attention = module("vllm.v1.attention.ops.triton_prefill_attention")
unified_attention = module("vllm.v1.attention.ops.triton_unified_attention")
decode_attention = module("vllm.v1.attention.ops.triton_decode_attention")
merge_states = module("vllm.v1.attention.ops.triton_merge_attn_states")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal", "window", "packed"),
        logits=("sink",),
        square=True,
        equal_dims=True,
        also=no_zero_window,
        backward=False,
    ),
    contract=Contract(lse_base=None, padding="undefined"),
    form=triton_form(),
)
def prefill(p: Problem) -> Any:
    x = p.varlen()
    o = torch.empty_like(x.q)
    left, right = p.window or (None, None)
    lengths = (x.cu_seqlens_q[:-1], x.cu_seqlens_q.diff(), x.max_seqlen_q)
    prefill_attention.context_attention_fwd(
        x.q, x.k, x.v, o, *lengths, p.causal is not None, p.scale, left, right, p.sink
    )
    return p.outputs(o, layout="thd")


_PAGED = Supports(
    precisions=("tf32",),
    masks=("causal", "window", "key_lengths", "query_lengths"),
    required_masks=("causal",),
    causal=("bottom-right",),
    window_sides=("left",),
    page_sizes=(16, 32, 64),
    always_paged=True,
    freed_pages=False,
    equal_dims=True,
    also=rows_end_at_keys,
    backward=False,
)
_TOKENS = Contract(lse_base=None, padding="undefined", empty_row_o=None)


def _unified(p: Problem) -> Any:
    x = p.paged("vllm")
    o = torch.empty_like(x.q)
    left = -1 if p.window is None or p.window[0] is None else p.window[0]
    lengths = (x.query_start_loc, x.max_query_len, x.seq_lens, x.max_seq_len)
    unified_attention.unified_attention(
        *(x.q, x.key_cache, x.value_cache, o, *lengths, p.scale, True, (left, 0), x.block_table),
        *(p.softcap or 0, None, None, None),
        alibi_slopes=p.slopes,
        sinks=p.sink,
    )
    return p.outputs(o, layout="thd")


@subject(supports=dataclasses.replace(_PAGED, logits=("softcap", "sink")), contract=_TOKENS, form=triton_form())
def unified(p: Problem) -> Any:
    return _unified(p)


@subject(
    supports=dataclasses.replace(_PAGED, logits=("alibi",), wild_slopes=False), contract=_TOKENS, form=triton_form()
)
def unified_alibi(p: Problem) -> Any:
    return _unified(p)


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("key_lengths",),
        logits=("softcap",),
        seq_q=(1,),
        page_sizes=(1, 16),
        always_paged=True,
        backward=False,
    ),
    contract=Contract(lse_base="e", empty_row_o=None, empty_row_lse=None),
    form=triton_form(),
)
def decode(p: Problem) -> Any:
    x = p.paged("vllm")
    heads, dim_v = x.q.shape[1], x.value_cache.shape[-1]
    o, lse = x.q.new_empty(x.q.shape[0], heads, dim_v), x.q.new_empty(x.q.shape[:2], dtype=torch.float32)
    partial = torch.empty(x.q.shape[0], heads, 4, dim_v + 1, dtype=torch.float32, device=x.q.device)
    decode_attention.decode_attention_fwd(
        *(x.q, x.key_cache, x.value_cache, o, lse, x.block_table, x.seq_lens, partial, 4, p.scale),
        page_size=x.value_cache.shape[1],
        logit_cap=p.softcap or 0.0,
    )
    return p.outputs(o, lse, "thd", "th")


merge = merge_attn_states(merge_states.merge_attn_states, name="merge", contract={"padding": "undefined"})
