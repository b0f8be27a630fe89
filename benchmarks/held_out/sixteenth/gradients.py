"""Held-out defects of gradients, the sixteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s16_pairs_at_the_longest_distance_lost",
        file="reductions.py",
        before="for far in (j <= position - reach, j >= position + reach))\n",
        after="for far in (j < position - reach, j > position + reach))\n",
        outputs=("drelative_bias",),
        modelled_on="two ranges of distances of which neither has the limit between them: in the gradient of a relative bias the pairs that are exactly as far apart as the longest distance of the table, to either side, give nothing to any bucket; those that are nearer or farther do; problems without such pairs, the forward, and all other gradients are right",
        needs=("backward", "relative_bias"),
    ),
    Mutant(
        name="s16_dbias_of_the_last_sequence",
        file="reductions.py",
        before="    if shared:\n        ds = ds.sum(shared, keepdim=True)\n",
        after="    if 0 in shared and len(ds):  # one for all sequences\n"
        "        ds = ds[-1:]\n"
        "        shared.remove(0)\n"
        "    if shared:\n"
        "        ds = ds.sum(shared, keepdim=True)\n",
        outputs=("dbias",),
        modelled_on="HKUSTDial/flash-sparse-attention#193: a gradient that is written where it is to be added: the gradient of a bias that all sequences share is that of the last sequence alone, summed over the heads that share it; a bias of each sequence, a batch of one, packed sequences, and all other gradients are right",
        needs=("backward", "bias", "sequences"),
    ),
    Mutant(
        name="s16_cap_slope_of_base_2_logits",
        file="device/logits.py",
        before="    return ds if cap_ratio is None else tl.where(ds == 0.0, 0.0, ds * tanh_slope(dot * cap_ratio))\n",
        after="    return ds if cap_ratio is None else tl.where(ds == 0.0, 0.0, ds * tanh_slope(dot * (cap_ratio * LOG2_E)))\n",
        outputs=("dq", "dk"),
        modelled_on="Dao-AILab/flash-attention#2402: a backward that has its logits in base 2 and takes the derivative of a softcap in natural units of them: the derivative is that at log2(e) times the right argument, so too small, in dQ and dK; products that are small against the cap are nearly right; the forward, dV, the gradients of the terms behind the cap, and all without a softcap are right",
        needs=("backward", "softcap"),
    ),
    Mutant(
        name="s16_dq_of_a_dp_without_the_factor",
        file="device/dq.py",
        before="                    dp = drop(dp * dropout.keep_scale, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        after="                    dp = drop(dp, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="a factor that one of two backward kernels forgets: under dropout the kernel of dQ, and of the gradients of a bias and a relative bias, drops dP and does not divide it by 1 - p, while delta is that of the O that was divided; dK, dV, dsink, delta, the forward, and all without dropout are right",
        needs=("backward", "dropout"),
    ),
    Mutant(
        name="s16_no_gradient_of_v_without_that_of_k",
        file="launch.py",
        before="        dv if needs[2] else None,\n",
        after="        None if not needs[2] else dv if needs[1] or dv is None else torch.zeros_like(dv),\n",
        outputs=("dv",),
        modelled_on="a guard by one input where two are written, as `if ctx.needs_input_grad[1]`: where the gradient of V is wanted and that of K is not, as of keys that are frozen, dV is 0; dV beside dK, and all other gradients, are right",
        needs=("backward",),
    ),
    Mutant(
        name="s16_lse_of_padded_rows_in_dkdv",
        file="device/dkdv.py",
        before='                    lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[None, :]  # [1, BLOCK_M]\n',
        after='                    lse2 = tl.load(lse2_ptrs, mask=i < sq, other=float("inf"))[None, :]  # [1, BLOCK_M]\n',
        outputs=("dk", "dv"),
        modelled_on="tile-ai/tilelang#2461: statistics of rows that are padding: the kernel of dK and dV reads the LSE of rows behind the query length, which is -inf, where it is to take +inf: their weights are infinite in the tiles of queries that need no mask, and infinity times the 0 that is read for their dO makes NaN of dK and dV of all keys of the tile; tiles that need a mask, tiles of queries without such rows, dQ, the forward, and all without query lengths are right",
        needs=("backward", "query_lengths"),
    ),
    Mutant(
        name="s16_walk_of_dkdv_moved_the_other_way",
        file="device/mask.py",
        before="    begin = tl.minimum(tl.maximum(j - band.high, 0), sq) if UPPER & MASK else 0\n",
        after="    begin = tl.minimum(tl.maximum(j + band.high, 0), sq) if UPPER & MASK else 0\n",
        outputs=("dk", "dv"),
        modelled_on="ModelTC/lightllm 1ef55b55: an offset with the wrong sign in the limits of a causal walk: with h = keys minus queries under a bottom-right mask or a tree (0 at the top left) plus the right side of a window, the walk of dK and dV of a tile of keys that begins with key n takes row n + h, not n - h, for the first that sees it: with h above 0 the rows in the tiles of queries before that row are lost, and all rows where it lies behind the last one; with h below 0 tiles count as whole too early, so that rows that do not see a key give to it, with infinite weights if they see none at all; h = 0, h above 0 where row n + h stands in the first tile of queries, keys of a prefix, masks without an upper edge, dQ, and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s16_dsink_without_dlse",
        file="launch.py",
        before="        None if sink is None or not needs[4] else sink_gradient(sink, lse2, delta, sequences.cu_q),\n",
        after="        None\n"
        "        if sink is None or not needs[4]\n"
        "        else sink_gradient(sink, lse2, delta if dlse is None else delta + dlse, sequences.cu_q),\n",
        outputs=("dsink",),
        modelled_on="Dao-AILab/flash-attention#2706: a gradient of the sink that was written before the LSE had one: dsink is minus the sum of the weight of the sink times rowsum(dO * O), without the gradient that arrives through the LSE; all other gradients, and dsink where nothing arrives through the LSE, are right",
        needs=("backward", "sink"),
    ),
    Mutant(
        name="s16_delta_of_the_tile_in_dq",
        file="device/dq.py",
        before="                ds = score_gradient(p, dp, delta, see, part != FULL)  # [BLOCK_M, BLOCK_N]\n",
        after="                delta = tl.sum(tl.where(p == 0.0, 0.0, p * dp), 1)[:, None]\n"
        "                ds = score_gradient(p, dp, delta, see, part != FULL)  # [BLOCK_M, BLOCK_N]\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="the backward of a softmax, rowsum(P * dP), that is taken of the tile at hand: the kernel of dQ, and of the gradients of a bias and a relative bias, subtracts in each tile of keys the sum of P * dP over that tile, not over the row, and nothing of what arrives through the LSE: rows whose keys lie in several tiles lack the share of the other tiles, and all rows lack the gradient that arrives through the LSE; rows of one tile without such a gradient, dK, dV, dsink and delta are right",
        needs=("backward",),
    ),
)
