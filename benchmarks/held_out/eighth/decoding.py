"""Held-out defects of decoding, pages, splits, merges and other caches, the eighth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s8_splits_begin_with_a_page",
        file="device/decode.py",
        before="            p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)\n",
        after="            if PAGED != CONTIGUOUS:\n"
        "                whole = tl.where(split > 0, tl.cdiv(split_start, pages.size) * pages.size, 0)\n"
        "                p, m_i, l_i, alpha = online_step(z, see & (j >= whole)[None, :], m_i, l_i, True)\n"
        "            else:\n"
        "                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)\n",
        outputs=("o", "lse"),
        modelled_on="two units for one limit: with pages every split but the first begins with the next whole page, while the one before ends at its tile of keys: the keys in between are lost; right with one split, without pages, and where pages divide the tiles",
        subject="bundled-decode",
        needs=("paged", "launch"),
    ),
    Mutant(
        name="s8_paged_decoding_without_the_softcap",
        file="decode.py",
        before='            terms=logit_terms(call, "dq"),  # without the sink\n',
        after='            terms=logit_terms(call, "dq")\n'
        "            if table is None\n"
        '            else logit_terms(call, "dq")._replace(cap_ratio=None, cap_log2=None),\n',
        outputs=("o", "lse"),
        modelled_on="vllm-project/vllm-metal#665: a softcap that one of two paths is not handed: decoding with pages leaves it out; without pages it counts",
        subject="bundled-decode",
        needs=("paged", "softcap"),
    ),
    Mutant(
        name="s8_lse_of_every_row_tile_in_the_first",
        file="device/decode.py",
        before="    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h\n"
        "    tl.store(lse_ptr + lse_row * sizes.sq + i, lse2 * lse_scale, mask=i < sizes.sq)",
        after="    own = tl.arange(0, BLOCK_M)\n"
        "    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + hk * sizes.group + own % sizes.group\n"
        "    tl.store(lse_ptr + lse_row * sizes.sq + own // sizes.group, lse2 * lse_scale, mask=i < sizes.sq)",
        outputs=("o", "lse"),
        modelled_on="NVIDIA/cudnn-frontend#1083: the offset of a tile that is added for O and not for the statistics: where the packed rows of a kv head (queries times heads of the group) fill more than one tile, the LSE of every tile is written over that of the first, and its own place is never written; O of one split is right, several splits are merged by those; one tile of rows is right",
        subject="bundled-decode",
    ),
    Mutant(
        name="s8_merge_weights_in_bf16",
        file="device/merge.py",
        before="        w = tl.exp2((lse - pivot[None, :]) * to_log2) / total[None, :]\n        o = load_partials",
        after="        w = tl.exp2((lse - pivot[None, :]) * to_log2) / total[None, :]\n"
        "        w = w.to(tl.bfloat16).to(tl.float32)\n"
        "        o = load_partials",
        outputs=("o",),
        modelled_on="precision: a merge rounds the weight of every partial to bf16, whatever the dtype, before it multiplies the partial output: O has bf16's precision in fp16 and fp32, and one more rounding in bf16; the LSE is right, and so are weights of 1 and of other powers of two, and one split",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="s8_rotary_queries_of_the_first_head",
        file="device/latent.py",
        before="        q_rope = load_rows(q_view.ptr + sizes.dv8 * 8, q_offset, i < sizes.sq, rope8, BLOCK_R, EVEN_R, ALIGNED)\n",
        after="        shared = q_offset - (r % sizes.group).to(tl.int64) * q_view.head\n"
        "        q_rope = load_rows(q_view.ptr + sizes.dv8 * 8, shared, i < sizes.sq, rope8, BLOCK_R, EVEN_R, ALIGNED)\n",
        outputs=("o", "lse"),
        modelled_on="latent cache: the rotary part of a query is taken to be shared by all heads, as that of the key is: every query head has the rotary channels of the first head of its group; the first head is right, and so are one query head and caches without rotary channels",
        subject="bundled-latent",
        needs=("groups",),
    ),
    Mutant(
        name="s8_scales_are_powers_of_two",
        file="quantised/cache.py",
        before="            scale=Scales(self.scale, *self._group_steps(self.scale)),\n",
        after="            scale=Scales(\n"
        "                powers := (self.scale.view(torch.int32) & -(1 << 23)).view(torch.float32), *self._group_steps(powers)\n"
        "            ),\n",
        outputs=("o", "lse"),
        modelled_on="scales kept as exponents alone, as of MX formats: the scale of K and of V is rounded down to a power of two: logits and O are too small by up to a half; scales that are powers of two are right, and so is that of q",
        subject="bundled-quantised",
    ),
    Mutant(
        name="s8_chosen_block_of_the_diagonal_is_whole",
        file="device/selected_forward.py",
        before="        see = seen_pairs(i[:, None], j[None, :], inside[:, None],",
        after="        see = seen_pairs(i[:, None], (j // selected.keys * selected.keys)[None, :], inside[:, None],",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="chosen keys: a causal mask by whole blocks: in the forward a row sees all keys of a chosen block that begins at or before its diagonal, also those after it; dQ, dK and dV ask each key and start from the wrong LSE; blocks of one key are right, and so is all without a causal mask",
        subject="bundled-selected",
        needs=("causal",),
    ),
)
