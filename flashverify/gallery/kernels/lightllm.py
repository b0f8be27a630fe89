"""LightLLM's Triton attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import dims_among, triton_form
from flashverify.gallery.place import modules_of
from flashverify.launching.pretend import pretend_cuda
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

module = modules_of(release("lightllm"))
with pretend_cuda((9, 0)):
    context = module("lightllm.models.llama.triton_kernel.context_flashattention_nopad")
    gqa_decode = module("lightllm.models.llama.triton_kernel.gqa_decode_flashattention_nopad")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal", "packed"),
        required_masks=("causal",),
        square=True,
        equal_dims=True,
        scales=("default",),
        also=dims_among(16, 32, 64, 128, 256),
        backward=False,
    ),
    contract=Contract(lse_base=None, padding="undefined"),
    form=triton_form(normalise="every_block"),
)
def prefill(p: Problem) -> Any:
    x = p.varlen()
    o = torch.empty_like(x.q)
    lengths = (x.cu_seqlens_q[:-1], x.cu_seqlens_q.diff(), x.max_seqlen_q)
    context.context_attention_fwd_no_prompt_cache(x.q, x.k, x.v, o, *lengths)
    return p.outputs(o, layout="thd")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("key_lengths",),
        seq_q=(1,),
        page_sizes=(1, 16),
        always_paged=True,
        equal_dims=True,
        scales=("default",),
        also=dims_among(16, 32, 64, 128),
        backward=False,
    ),
    contract=Contract(lse_base=None, empty_row_o=None),
    form=triton_form(normalise="every_block"),
)
def decode(p: Problem) -> Any:
    x = p.paged("sglang")
    o = torch.empty_like(x.q)
    lengths = (x.req_to_token, x.req_pool_indices, x.seq_lens)
    gqa_decode.gqa_decode_attention_fwd(x.q, x.k_buffer, x.v_buffer, o, *lengths)
    return p.outputs(o, layout="thd")
