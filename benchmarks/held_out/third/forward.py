"""Held-out defects of a forward and its masks, the third set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="t_packed_v_at_the_rows_of_q",
        file="device/forward.py",
        before="v_head = head_of(v_view, b, h // sizes.group, k0, ALIGNED)",
        after="v_head = head_of(v_view, b, h // sizes.group, q0, ALIGNED)",
        outputs=("o",),
        modelled_on="packed sequences: V is read from where the queries of the sequence start (cu_seqlens_q for cu_seqlens_k); right for the first sequence and where queries and keys have the same lengths",
        needs=("packed",),
    ),
    Mutant(
        name="t_length_zero_means_all",
        file="device/address.py",
        before="return rows if lengths_ptr is None else tl.minimum(tl.maximum(tl.load(lengths_ptr + b), 0), rows)",
        after="return rows if lengths_ptr is None else tl.where(tl.load(lengths_ptr + b) == 0, rows, tl.minimum(tl.maximum(tl.load(lengths_ptr + b), 0), rows))",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="a declared length of 0, of queries or of keys, counts as none declared: all rows or keys of that sequence take part; every other length is right",
        needs=("key_lengths",),
    ),
    Mutant(
        name="t_small_rises_are_not_rescaled",
        file="device/softmax.py",
        before="    alpha = tl.exp2(m_i - pivot)\n    return p, m_new, l_i * alpha + tl.sum(p, 1), alpha",
        after="    alpha = tl.where(m_new - m_i < 0.5, 1.0, tl.exp2(m_i - pivot))\n    return p, m_new, l_i * alpha + tl.sum(p, 1), alpha",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the accumulator and the row sum are not rescaled (alpha = 1) where a later tile raises the running maximum by less than 0.5 in base 2, though the new maximum is taken: wrong from the second tile of keys on, in some rows",
    ),
    Mutant(
        name="t_lse_of_the_unshifted_sum",
        file="device/softmax.py",
        before="return divisor, m_i + tl.log2(divisor)",
        after="return divisor, tl.log2(divisor * tl.exp2(m_i))",
        outputs=("lse", "dq", "dk", "dv"),
        modelled_on="the LSE is log(sum * exp(max)): +inf where it is above 88, -inf where it is below -87 or so, coarse just above that; O is right, gradients follow the wrong LSE; logits of ordinary size are right",
    ),
    Mutant(
        name="t_dropped_weights_leave_the_sum",
        file="device/forward.py",
        before="                    p = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        after="                    kept = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))\n                    l_i += tl.sum(kept - p, 1)\n                    p = kept\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="dropout before the normalisation: the row sum, and so the LSE, is that of the kept weights alone",
        needs=("dropout",),
    ),
    Mutant(
        name="t_draws_repeat_after_four_heads",
        file="device/dropout.py",
        before="quad[None, :], i[:, None], stream, draws.offset.to(tl.uint32))",
        after="quad[None, :], i[:, None], stream % 4, draws.offset.to(tl.uint32))",
        outputs=("o", "dq", "dk", "dv"),
        modelled_on="the counter of dropout holds the number of batch and head in two bits: from the fifth (batch, head) on the draws are those of four before, in forward and backward alike",
        needs=("dropout",),
    ),
    Mutant(
        name="t_log2e_folded_into_q",
        file="device/forward.py",
        before="                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n",
        after="                q2 = (q.to(tl.float32) * 1.4426950408889634).to(q.dtype) if q.dtype != tl.float32 else q\n"
        "                dot = tl.dot(q2, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n"
        "                dot = dot * 0.6931471805599453 if q.dtype != tl.float32 else dot\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="precision: in 16 bits log2(e) is multiplied into Q and rounded to the dtype of Q before the product with K; fp32 is right",
    ),
    Mutant(
        name="t_accumulator_in_the_dtype_of_v",
        file="device/forward.py",
        before="                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)  # [BLOCK_M, BLOCK_DV]\n",
        after="                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)  # [BLOCK_M, BLOCK_DV]\n"
        "                acc = acc.to(v.dtype).to(tl.float32)\n",
        outputs=("o",),
        modelled_on="precision: the accumulator of O is kept in the dtype of V between tiles of keys: rounded once more per tile, and +-inf in fp16 where an unnormalised sum passes 65504; fp32 is right",
    ),
    Mutant(
        name="t_window_edge_by_whole_tiles",
        file="device/schedule.py",
        before="    full_begin = tl.cdiv(sure_from, STEP) * STEP\n",
        after="    full_begin = (tl.cdiv(sure_from, STEP) if AXIS == QUERIES else sure_from // STEP) * STEP\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="the tile of keys that the left edge of a window cuts counts as wholly visible (floor for ceiling): rows of a tile see keys before their window, back to the start of that tile, unless the tile is also cut on the right; dK and dV are right",
        needs=("window",),
    ),
    Mutant(
        name="t_selection_duplicates_counted",
        file="selection.py",
        before="    named[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]\n",
        after="",
        outputs=("o", "lse"),
        modelled_on="a block that stands twice in a list of chosen blocks counts twice in the forward and in dQ; dK and dV count it once; right for lists without duplicates",
        subject="bundled-selected",
    ),
    Mutant(
        name="t_stripes_as_long_as_the_first",
        file="ring/sharding.py",
        before='    within = (lengths - keys.start + keys.step - 1).div(keys.step, rounding_mode="floor")\n',
        after='    within = (lengths - keys.start * (keys.step == 1) + keys.step - 1).div(keys.step, rounding_mode="floor")\n',
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="ring attention over stripes: within a declared length every rank counts as many keys as rank 0 does, so up to ranks - 1 keys behind the length are seen; contiguous and zigzag parts, and lengths that the ranks divide, are right",
        subject="bundled-ring",
        needs=("key_lengths",),
    ),
)
