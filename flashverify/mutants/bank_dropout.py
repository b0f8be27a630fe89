"""Defects of dropout."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["DROPOUT"]

DROPOUT = (
    Mutant(
        name="same_draws_at_every_offset",
        file="device/dropout.py",
        before="offset.to(tl.uint32))",
        after="offset.to(tl.uint32) * 0)",
        outputs=("o", "dv"),
        modelled_on="Dao-AILab/flash-attention#2088: the same dropout mask in every call",
        needs=("dropout",),
    ),
    Mutant(
        name="rows_and_keys_drawn_in_turn",
        file="device/dropout.py",
        before="tl.philox(seed, quad[None, :], i[:, None],",
        after="tl.philox(seed, i[:, None], quad[None, :],",
        outputs=("o", "dv"),
        modelled_on="the axes of the counter in another order than the definition",
        needs=("dropout",),
    ),
    Mutant(
        name="draws_of_another_head_in_dkdv",
        file="device/dkdv.py",
        before="stream = b * kv_heads * group + h",
        after="stream = b * kv_heads + h",
        outputs=("dk", "dv"),
        modelled_on="pytorch/pytorch#190717: the mask drawn again by the backward is another",
        needs=("dropout", "backward", "groups", "sequences"),
    ),
    Mutant(
        name="draws_kept_inverted",
        file="device/dropout.py",
        before="tl.join(w0 >= limit, w2 >= limit)",
        after="tl.join(w0 < limit, w2 < limit)",
        outputs=("o", "dv"),
        modelled_on="the probability to keep taken for the one to drop, in half of the lanes",
        needs=("dropout",),
    ),
    Mutant(
        name="kept_weights_not_scaled",
        file="device/forward.py",
        before="divisor = divisor * keep_share",
        after="divisor = divisor * 1.0",
        outputs=("o",),
        modelled_on="dropout without 1 / (1 - p) in the forward",
        needs=("dropout",),
    ),
    Mutant(
        name="dv_not_scaled",
        file="device/dkdv.py",
        before="dv = dv / keep_share",
        after="dv = dv",
        outputs=("dv",),
        modelled_on="dropout without 1 / (1 - p) in dV",
        needs=("dropout", "backward"),
    ),
    Mutant(
        name="dp_not_scaled",
        file="device/dq.py",
        before="dp = drop(dp * keep_scale,",
        after="dp = drop(dp,",
        outputs=("dq",),
        modelled_on="dropout without 1 / (1 - p) in dP",
        needs=("dropout", "backward"),
    ),
    Mutant(
        name="dropped_pairs_without_delta",
        file="device/dq.py",
        before="dp = drop(dp * keep_scale, keep_tile(i, n0, bh, seed, offset, threshold, BLOCK_N))",
        after="keep = keep_tile(i, n0, bh, seed, offset, threshold, BLOCK_N)\n                    dp = drop(dp * keep_scale, keep)\n                    p = drop(p, keep)",
        outputs=("dq",),
        modelled_on="HKUSTDial/flash-sparse-attention#109: the logit of a dropped pair gets no gradient, although it is in the normaliser",
        needs=("dropout", "backward"),
    ),
    Mutant(
        name="dropped_before_the_normaliser",
        file="device/forward.py",
        before="p = drop(p, keep_tile(i, n0, bh, seed, offset, threshold, BLOCK_N))",
        after="kept = drop(p, keep_tile(i, n0, bh, seed, offset, threshold, BLOCK_N))\n                    l_i -= tl.sum(p - kept, 1)\n                    p = kept",
        outputs=("o", "lse"),
        modelled_on="weights normalised over what was kept",
        needs=("dropout",),
    ),
)
