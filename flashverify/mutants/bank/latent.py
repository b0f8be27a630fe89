"""Defects of attention over a latent cache, whose V is a part of K."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["LATENT"]

_PRODUCT = "acc = tl.dot(p.to(kv.dtype), kv, acc"
_LOAD = "load_rows({pointer}, {offset}, keep, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)"


def _values(pointer: str, offset: str) -> str:
    """The product with a V that is loaded by itself."""
    return f"v = {_LOAD.format(pointer=pointer, offset=offset)}\n            acc = tl.dot(p.to(v.dtype), v, acc"


LATENT = (
    Mutant(
        name="values_at_the_end_of_the_row",
        file="device/latent.py",
        before=_PRODUCT,
        after=_values("kv_ptr + rope8 * 8", "offset"),
        outputs=("o",),
        modelled_on="the rotary channels are taken to come first, so that V holds them",
        subject="bundled-latent",
        semantics="shared-v-last-channels",
    ),
    Mutant(
        name="values_by_rows_of_their_own_width",
        file="device/latent.py",
        before=_PRODUCT,
        after=_values("kv_ptr", "place_offsets(page, slot, kv_view.batch, sizes.dv8 * 8, PAGED)"),
        outputs=("o", "kv_view"),
        modelled_on="a row of V found by the width of V, where rows are as wide as K",
        subject="bundled-latent",
    ),
    Mutant(
        name="rotary_part_left_out",
        file="device/latent.py",
        before="dot = tl.dot(q_rope, tl.trans(k_rope), dot, input_precision=PRECISION)",
        after="dot = dot",
        outputs=("o", "lse"),
        modelled_on="logits of the latent channels alone",
        subject="bundled-latent",
        semantics="shared-k-without-rest",
    ),
    Mutant(
        name="rotary_part_counted_twice",
        file="latent_config.py",
        before='"EVEN_DV": dv == padded_dim(dv)',
        after='"EVEN_DV": True',
        outputs=("o", "lse", "q_view", "kv_view", "o_view"),
        modelled_on="a tile as wide as the next power of two: the latent tile reaches into the rotary channels",
        subject="bundled-latent",
    ),
    Mutant(
        name="scaled_by_the_channels_of_v",
        file="latent_validation.py",
        before="scale=check_scale(options.scale, d)",
        after="scale=check_scale(options.scale, dim_v)",
        outputs=("o", "lse"),
        modelled_on="1 / sqrt(512) in place of 1 / sqrt(576): the width of the cache's latent part",
        subject="bundled-latent",
        semantics="scale-by-dim-v",
    ),
    Mutant(
        name="latent_partials_in_the_wrong_base",
        file="latent.py",
        before="base2=True",
        after="base2=False",
        outputs=("o", "lse"),
        modelled_on="flashinfer-ai/flashinfer#4485: base-2 states merged as natural ones",
        subject="bundled-latent",
        semantics="merge-in-wrong-base",
    ),
    Mutant(
        name="last_page_of_the_cache_not_read",
        file="device/latent.py",
        before="keep = j < k_end\n",
        after="keep = j < (k_end if PAGED == CONTIGUOUS else (k_end - 1) // pages.size * pages.size)\n",
        outputs=("o", "lse"),
        modelled_on="the last page of a sequence is taken to be empty; its keys are zeros that are seen",
        subject="bundled-latent",
        needs=("paged",),
    ),
    Mutant(
        name="rotary_part_without_pages",
        file="device/latent.py",
        before="k_rope = load_rows(rope_ptr, offset,",
        after="k_rope = load_rows(rope_ptr, j.to(tl.int64) * kv_view.row,",
        outputs=("o", "lse", "kv_view"),
        modelled_on="the page table is followed for one part of the row alone",
        subject="bundled-latent",
        needs=("paged",),
    ),
    Mutant(
        name="causal_by_the_packed_row",
        file="device/latent.py",
        before="see = visible(i[:, None], j[None, :], sizes.sq,",
        after="see = visible(r[:, None], j[None, :], sizes.sq * sizes.group,",
        outputs=("o", "lse"),
        modelled_on="heads packed into the rows of a tile: the number of the packed row taken for the query",
        subject="bundled-latent",
        needs=("causal", "groups"),
    ),
)
