"""Held-out defects of decoding, pages, splits, merges and other caches, the sixth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s6_lse_by_queries_then_heads",
        file="device/decode.py",
        before="    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h\n"
        "    tl.store(lse_ptr + lse_row * sizes.sq + i, lse2 * lse_scale, mask=i < sizes.sq)\n",
        after="    lse_row = (split.to(tl.int64) * batch + b) * sizes.sq + i\n"
        "    tl.store(lse_ptr + lse_row * sizes.heads + h, lse2 * lse_scale, mask=i < sizes.sq)\n",
        outputs=("o", "lse"),
        modelled_on="an LSE written as (queries, heads) and read as (heads, queries): in decoding with several queries and several query heads LSEs change places within a sequence, and the merge of several splits (or of a sink) weighs parts by those of other rows; with one split the O is right, and with one query or one head all is",
        subject="bundled-decode",
    ),
    Mutant(
        name="s6_values_by_the_strides_of_k",
        file="device/decode.py",
        before="            v_offset = place_offsets(page, slot, v_view.batch, v_view.row, PAGED)\n",
        after="            v_offset = place_offsets(page, slot, k_view.batch, k_view.row, PAGED)\n",
        outputs=("o",),
        modelled_on="one stride for both caches: decoding reads the rows (and pages) of V by the strides of those of K: O is wrong where V has other channels than K or lies otherwise; the LSE is right, and so is O where K and V have the same shape and layout",
        subject="bundled-decode",
    ),
    Mutant(
        name="s6_merge_of_nothing_is_nan",
        file="device/merge.py",
        before='    pivot = tl.where(m == float("-inf"), 0.0, m)\n',
        after="    pivot = m\n",
        outputs=("o", "lse"),
        modelled_on="a merge of partials that are all empty: -inf - -inf makes O and LSE of such a row NaN, where 0 and -inf are declared; rows with a key, and a single split, are right",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="s6_rotary_part_of_32_channels",
        file="device/latent.py",
        before="                k_rope = load_rows(rope_ptr, offset, keep, rope8, BLOCK_R, EVEN_R, ALIGNED)  # [BLOCK_N, BLOCK_R]\n",
        after="                k_rope = load_rows(rope_ptr, offset, keep, tl.minimum(rope8, 4), BLOCK_R, False, ALIGNED)\n",
        outputs=("o", "lse"),
        modelled_on="a number of channels that is written into the kernel: latent cache: the rotary channels from the 33rd on are left out of q k; right with 32 of them or fewer",
        subject="bundled-latent",
    ),
    Mutant(
        name="s6_high_half_first",
        file="device/quantised/codes.py",
        before="        x = tl.interleave(pair & 15, pair >> 4)\n",
        after="        x = tl.interleave(pair >> 4, pair & 15)\n",
        outputs=("o", "lse"),
        modelled_on="the two codes of a byte of int4 change places: channels 2c and 2c + 1 of K and of V are exchanged; the formats of 8 bits are right",
        subject="bundled-quantised",
        needs=("int4",),
    ),
    Mutant(
        name="s6_scale_of_k_lost_beside_codes_of_q",
        file="device/quantised/attention.py",
        before="        z = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION) * (k_scale * scale_log2)[None, :]\n",
        after="        if DTYPE is not None:\n"
        "            k_scale = tl.full([1], 1.0, tl.float32)\n"
        "        z = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION) * (k_scale * scale_log2)[None, :]\n",
        outputs=("o", "lse"),
        modelled_on="a scale that is dropped on one of two paths: where q is in codes and scales are folded, those of K do not reach the logits, as if they were 1; values of q, and the mode in which operands are dequantised, are right",
        subject="bundled-quantised",
        needs=("q_codes",),
    ),
    Mutant(
        name="s6_weights_in_e4m3_without_a_factor",
        file="device/quantised/attention.py",
        before="WEIGHT_FACTOR = tl.constexpr(256.0)\n",
        after="WEIGHT_FACTOR = tl.constexpr(1.0)\n",
        outputs=("o",),
        modelled_on="precision: weights are cast to e4m3 without the factor of 256: those below 2^-10 of the largest so far vanish from the numerator and those below 2^-6 lose bits, while the row sum counts them; the LSE and the modes whose weights are not fp8 are right",
        subject="bundled-quantised-decode",
        needs=("e4m3", "launch"),
    ),
    Mutant(
        name="s6_ring_o_in_the_dtype_of_q",
        file="ring/passes.py",
        before="    o = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float32, device=q.device)\n",
        after="    o = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)\n",
        outputs=("o", "dq", "dk", "delta"),
        modelled_on="precision: ring attention keeps O in the dtype of q from step to step: it is rounded to 16 bits once for every part of the keys that it is merged with; LSE, fp32 and rows that one part holds are right",
        subject="bundled-ring",
        needs=("launch",),
    ),
    Mutant(
        name="s6_chosen_block_beyond_the_length",
        file="device/selected_forward.py",
        before="        j, keep = named_keys(list_ptr, lane, count, selected, k_end, BLOCK_N, WHOLE)\n",
        after="        j, keep = named_keys(list_ptr, lane, count, selected, sizes.sk, BLOCK_N, WHOLE)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="chosen keys: the forward sees all keys of a chosen block, also those behind the declared key length, which are padding; the causal mask still hides those after a row; right where every chosen block ends before the length, and in the backward, which starts from the wrong O and LSE",
        subject="bundled-selected",
        needs=("key_lengths",),
    ),
)
