"""Conch's Triton attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.gallery.catalogue import release
from flashverify.gallery.conditions import rows_end_at_keys, triton_form
from flashverify.gallery.place import modules_of
from flashverify.subjects.function import subject
from flashverify.subjects.interface import Contract, Supports

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

module = modules_of(release("conch"))
varlen_attention = module("conch.ops.attention.varlen_attention")
paged_attention = module("conch.ops.attention.paged_attention")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("causal", "key_lengths", "query_lengths"),
        causal=("bottom-right",),
        logits=("softcap",),
        page_sizes=(16, 32),
        always_paged=True,
        equal_dims=True,
        also=rows_end_at_keys,
        backward=False,
    ),
    contract=Contract(lse_base=None, padding="undefined", empty_row_o=None),
    form=triton_form(),
)
def varlen(p: Problem) -> Any:
    x = p.paged("vllm")
    lengths = (x.query_start_loc, x.max_query_len, x.seq_lens, x.max_seq_len, x.block_table)
    given = {"causal": p.causal is not None, "scale": p.scale, "softcap": p.softcap or 0.0}
    o = varlen_attention.varlen_attention(x.q, x.key_cache, x.value_cache, *lengths, **given)
    return p.outputs(o, layout="thd")


@subject(
    supports=Supports(
        precisions=("tf32",),
        masks=("key_lengths",),
        logits=("softcap",),
        seq_q=(1,),
        page_sizes=(16, 32),
        always_paged=True,
        equal_dims=True,
        backward=False,
    ),
    contract=Contract(lse_base=None, empty_row_o=None),
    form=triton_form(),
)
def paged(p: Problem) -> Any:
    x = p.paged("vllm")
    given = {"scale": p.scale, "softcap": p.softcap or 0.0}
    o = paged_attention.paged_attention(x.q, x.key_cache, x.value_cache, x.block_table, x.seq_lens, **given)
    return p.outputs(o, layout="thd")
