"""fasterkernels: FlashAttention-2 and decoding in Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import dims_among, triton_form
from flashverify.gallery.place import modules_of
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

module = modules_of(release("fasterkernels"))
fa2 = module("fskernels.triton.triton_fa2")
varlen_decode = module("fskernels.triton.triton_gqa_decode")
paged_decode = module("fskernels.paged_attn.triton_paged_attn")


@subject(
    supports=Supports(
        precisions=("tf32",), gqa=False, equal_dims=True, also=dims_among(16, 32, 64, 128, 256), backward=False
    ),
    contract=Contract(lse_base=None),
    form=triton_form(),
)
def forward(p: Problem) -> Any:
    return fa2.flash_attention_2_fwd(p.q, p.k, p.v, p.scale)


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("key_lengths",),
        logits=("sink",),
        seq_q=(1,),
        equal_dims=True,
        scales=("default",),
        also=dims_among(16, 32, 64, 128, 256),
        backward=False,
    ),
    contract=Contract(lse_base=None, empty_row_o=None),
    form=triton_form(),
)
def decode(p: Problem) -> Any:
    x = p.varlen()
    return p.outputs(varlen_decode.flash_decode_gqa_varlen(x.q, x.k, x.v, x.cu_seqlens_k, p.sink), layout="thd")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("key_lengths",),
        seq_q=(1,),
        equal_dims=True,
        scales=("default",),
        page_sizes=(16, 32),
        always_paged=True,
        also=dims_among(16, 32, 64, 128, 256),
        backward=False,
    ),
    contract=Contract(lse_base=None, empty_row_o=None),
    form=triton_form(),
)
def paged(p: Problem) -> Any:
    x = p.paged("flashinfer-hnd")
    y = p.paged("vllm")
    o = paged_decode.paged_flash_decode(x.q, x.k_cache, x.v_cache, y.block_table, y.seq_lens, x.page_size)
    return p.outputs(o, layout="thd")
