"""LMDeploy's Triton attention."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import alibi_under_causal, all_of, no_zero_window, rows_end_at_keys, triton_form
from flashverify.gallery.place import modules_of
from flashverify.launching.pretend import pretend_cuda
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

modes = enum.IntEnum("modes", "NONE INT4 INT8 FP8 FP8_E5M2 TURBO_QUANT", start=0)
with pretend_cuda((8, 0)):
    module = modules_of(release("lmdeploy"), {"lmdeploy.messages": {"QuantPolicy": modes}})
    flash_attention = module("lmdeploy.pytorch.kernels.cuda.flashattention")
    paged_attention = module("lmdeploy.pytorch.kernels.cuda.pagedattention")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal", "window", "packed"),
        causal=("bottom-right",),
        window_alignments=("bottom-right",),
        window_sides=("left",),
        logits=("softcap", "alibi", "sink"),
        wild_slopes=False,
        also=all_of(rows_end_at_keys, no_zero_window, alibi_under_causal),
        backward=False,
    ),
    contract=Contract(lse_base=None, padding="undefined", empty_row_o=None, masked_loads="zero"),
    form=triton_form(),
    pretend_cuda=(8, 0),
)
def prefill(p: Problem) -> Any:
    x = p.varlen()
    left = -1 if p.window is None or p.window[0] is None else p.window[0]
    lengths = (x.cu_seqlens_q, x.cu_seqlens_k, x.max_seqlen_q, x.max_seqlen_k)
    o = flash_attention.flash_attn_varlen_func(
        *(x.q, x.k, x.v, *lengths, p.scale, p.causal is not None, (left, left), p.softcap or 0.0),
        alibi_slopes=p.slopes,
        sinks=p.sink,
        kv_layout="shd",
    )
    return p.outputs(o, layout="thd")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("window", "key_lengths"),
        window_alignments=("bottom-right",),
        window_sides=("left",),
        logits=("softcap", "sink"),
        seq_q=(1,),
        page_sizes=(16, 32),
        always_paged=True,
        also=no_zero_window,
        backward=False,
    ),
    contract=Contract(lse_base=None, empty_row_o=None, masked_loads="zero"),
    form=triton_form(),
    pretend_cuda=(8, 0),
)
def paged(p: Problem) -> Any:
    x = p.paged("vllm")
    left = -1 if p.window is None or p.window[0] is None else p.window[0]
    o = paged_attention.flash_attn_with_kvcache(
        *(x.q, x.key_cache, x.value_cache, x.seq_lens, x.block_table),
        softmax_scale=p.scale,
        window_size=left,
        softcap=p.softcap or 0.0,
        alibi_slopes=p.slopes,
        sinks=p.sink,
    )
    return p.outputs(o, layout="thd")
