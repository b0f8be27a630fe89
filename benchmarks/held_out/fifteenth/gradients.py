"""Held-out defects of a backward, the fifteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s15_dbias_in_base_2",
        file="reductions.py",
        before="    return ds.to(bias.dtype)\n",
        after="    return (ds / LOG2_E).to(bias.dtype)  # z = S log2(e)\n",
        outputs=("dbias",),
        modelled_on="a gradient by the variable that the kernel has, not by that of the caller: the gradient of the bias is that of the logits in base 2, so ln 2 times the right one; that of a relative bias, and all other gradients, are right",
        needs=("backward", "bias"),
    ),
    Mutant(
        name="s15_do_of_the_first_member",
        file="device/dkdv.py",
        before="        do_head = head_of(do_view, b, h, q0, ALIGNED)\n",
        after="        do_head = head_of(do_view, b, hk * sizes.group, q0, ALIGNED)\n",
        outputs=("dk", "dv"),
        modelled_on="a pointer that is set before the loop over the heads of a group and not moved inside it: dV and dP of dK take the incoming gradient of the first query head of each group for all its heads, with Q, LSE and delta of each head; groups of one head, dQ and the forward are right",
        needs=("backward", "groups"),
    ),
    Mutant(
        name="s15_bias_not_passed_to_dkdv",
        file="arguments.py",
        before="        bias=view(terms.bias),\n",
        after='        bias=view(terms.bias if kind != "dkdv" else None),\n',
        outputs=("dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#2424: a modifier of the logits that one backward kernel is not handed: the kernel of dK and dV recomputes the weights without the bias, from the LSE with it: weights are off by exp(-bias); dQ, dbias, the forward, a relative bias, and all without a bias are right",
        needs=("backward", "bias"),
    ),
    Mutant(
        name="s15_delta_is_a_mean",
        file="device/delta.py",
        before="    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)\n",
        after="    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1) / (sizes.dv8 * 8)\n",
        outputs=("dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="a mean where a sum is meant, as of (dO * O).mean(-1): rowsum(dO * O) in delta is divided by the number of channels of V; dLSE is subtracted whole; dQ, dK and the gradients of biases and sinks are wrong with it; dV and the forward are right",
        needs=("backward",),
    ),
    Mutant(
        name="s15_whole_tiles_of_dkdv_without_alibi",
        file="device/dkdv.py",
        before="                    dpT = tl.dot(v, tl.trans(do), input_precision=PRECISION)  # [BLOCK_N, BLOCK_M]\n",
        after="                    if part == FULL and terms.slopes is not None:\n"
        "                        zT += head.slope_log2 * tl.abs(i[None, :] + head.shift - j[:, None]).to(tl.float32)\n"
        "                    dpT = tl.dot(v, tl.trans(do), input_precision=PRECISION)  # [BLOCK_N, BLOCK_M]\n",
        outputs=("dk", "dv"),
        modelled_on="Dao-AILab/flash-attention#2424: a modifier of the logits that one of two loops has: in the tiles of queries that need no mask the kernel of dK and dV recomputes the weights without ALiBi, from the LSE with it: they are too large by exp(slope times distance); tiles at the diagonal, at the sides of a window and under bits, dQ, the forward, and all without slopes are right",
        needs=("backward", "alibi"),
    ),
    Mutant(
        name="s15_selected_dkdv_aligned_to_the_room",
        file="device/selected_backward.py",
        before="    shift = sizes.align_end * (k_end - sizes.sq)\n    slot = ",
        after="    shift = sizes.align_end * (sizes.sk - sizes.sq)\n    slot = ",
        outputs=("dk", "dv"),
        modelled_on="ROCm/flash-attention#185: a diagonal that ends with the room for keys: chosen keys: under a bottom-right causal mask the kernel of dK and dV lets rows see as many keys after their own as the declared key length is below the room (up to that length), with weights from the LSE of the others; full lengths, top-left masks, dQ and the forward are right",
        subject="bundled-selected",
        needs=("backward", "causal", "key_lengths"),
    ),
    Mutant(
        name="s15_keys_before_the_first_are_the_first",
        file="reductions.py",
        before="    near = torch.where(((key >= 0) & (key < keys))[:, None], ds.gather(3, at), 0.0)\n",
        after="    near = torch.where((key < keys)[:, None], ds.gather(3, at), 0.0)\n",
        outputs=("drelative_bias",),
        modelled_on="an index that is clamped so that it can be gathered, and not masked afterwards: in the gradient of a relative bias every distance at which a row would see a key before the first one gets dS of the row and the first key once more: buckets of keys before the row are wrong, also those of distances that no pair has; buckets of keys at or after the row, rows whose dS with the first key is 0, and everything else are right",
        needs=("backward", "relative_bias"),
    ),
    Mutant(
        name="s15_rows_at_the_end_of_a_window_lost",
        file="device/dkdv.py",
        before="TRAILING + (1 if (LOWER | BITS) & MASK else 0)\n",
        after="TRAILING + (1 if BITS & MASK else 0)\n",
        outputs=("dk", "dv"),
        modelled_on="flashinfer-ai/flashinfer#3682: a kernel that lacks the loop over the tiles at one edge of a window: under a left side of a window and without bits, dK and dV lose the tiles of queries behind those that need no mask, in which the last rows that see a tile of keys lie; where no tile is whole they lose all of them and are 0; dQ, the forward, and all without a left side are right",
        needs=("backward", "window"),
    ),
    Mutant(
        name="s15_dbias_forgets_the_dropout",
        file="device/dq.py",
        before="                if dropout.keep_share is not None:\n"
        "                    dp = drop(dp * dropout.keep_scale, keep_tile(i, n0, bh, dropout, BLOCK_N))\n"
        "                ds = score_gradient(p, dp, delta, see, part != FULL)  # [BLOCK_M, BLOCK_N]\n"
        "                if ds_ptr is not None:\n"
        "                    at = row_numbers(stats, b, h, q0, i)[:, None] * sizes.sk + j[None, :]\n"
        "                    tl.store(ds_ptr + at, ds, ",
        after="                of_bias = score_gradient(p, dp, delta, see, part != FULL)\n"
        "                if dropout.keep_share is not None:\n"
        "                    dp = drop(dp * dropout.keep_scale, keep_tile(i, n0, bh, dropout, BLOCK_N))\n"
        "                ds = score_gradient(p, dp, delta, see, part != FULL)  # [BLOCK_M, BLOCK_N]\n"
        "                if ds_ptr is not None:\n"
        "                    at = row_numbers(stats, b, h, q0, i)[:, None] * sizes.sk + j[None, :]\n"
        "                    tl.store(ds_ptr + at, of_bias, ",
        outputs=("dbias", "drelative_bias"),
        modelled_on="pytorch/pytorch#190717: a path for the gradient of a bias that does not know dropout: under dropout dbias and the gradient of a relative bias are sums of P * (dP - delta) with dP of all pairs, neither dropped nor divided by 1 - p; dQ, dK, dV and the forward drop as declared; without dropout all is right",
        needs=("backward", "dropout"),
    ),
)
