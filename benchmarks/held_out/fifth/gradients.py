"""Held-out defects of gradients, the fifth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="f5_group_summed_in_bf16",
        file="device/dkdv.py",
        before="                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)  # [BLOCK_N, BLOCK_D]\n",
        after="                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)  # [BLOCK_N, BLOCK_D]\n"
        "        if sizes.group > 1:\n"
        "            dk = dk.to(tl.bfloat16).to(tl.float32)\n",
        outputs=("dk",),
        modelled_on="precision: with groups dK is kept in bf16 from one query head of the group to the next: it is rounded once more for every head of the group, visibly in fp16 and fp32; a group of one, dV and dQ are right, and bf16 is nearly so",
        needs=("groups", "backward"),
    ),
    Mutant(
        name="f5_do_scaled_in_16_bits",
        file="device/dq.py",
        before="                dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n"
        "                if dropout.keep_share is not None:\n"
        "                    dp = drop(dp * dropout.keep_scale, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        after="                scaled = do\n"
        "                if dropout.keep_share is not None:\n"
        "                    scaled = (do.to(tl.float32) * dropout.keep_scale).to(do.dtype)\n"
        "                dp = tl.dot(scaled, tl.trans(v), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n"
        "                if dropout.keep_share is not None:\n"
        "                    dp = drop(dp, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="precision: under dropout the kernel of dQ multiplies dO by 1 / (1 - p) and rounds it to 16 bits before the product with V, in place of dP in fp32: dQ and the gradients of a bias and a relative bias are imprecise; right in fp32, without dropout, where 1 / (1 - p) is a power of two, and in dK and dV",
        needs=("dropout", "backward"),
    ),
    Mutant(
        name="f5_dsink_shares_in_bf16",
        file="reductions.py",
        before="    return -(weight * torch.where(counts, delta, 0.0)).sum((0, 2)).to(torch.float32)\n",
        after="    shares = (weight * torch.where(counts, delta, 0.0)).to(torch.bfloat16)\n"
        "    return -shares.double().sum((0, 2)).to(torch.float32)\n",
        outputs=("dsink",),
        modelled_on="precision: the share of every row in the gradient of the sink is rounded to bf16 before the sum, in which shares cancel, in every dtype; all other gradients are right",
        needs=("sink", "backward"),
    ),
    Mutant(
        name="f5_causal_side_lost_beside_a_window",
        file="arguments.py",
        before='        "MASK": mask,\n',
        after='        "MASK": mask & ~1 if kind == "dkdv" and mask & 2 else mask,\n',
        outputs=("dk", "dv"),
        modelled_on="a backward that asks for a causal mask only where there is no window: where a mask has a left side of a window, the kernel of dK and dV leaves out its upper side (the causal mask, or the right side of the window): rows before a key give to its dK and dV; forward and dQ, causal masks without a window and windows without a right side are right",
        needs=("window", "backward"),
    ),
    Mutant(
        name="f5_clipped_pairs_give_nothing",
        file="reductions.py",
        before="for far in (j <= position - reach, j >= position + reach))\n",
        after="for far in (j == position - reach, j == position + reach))\n",
        outputs=("drelative_bias",),
        modelled_on="the gradient of a relative bias leaves out the pairs that are farther apart than the longest distance of the table, which take the bias of that distance in the forward; right where no visible pair is farther apart, and all other outputs are right",
        needs=("relative_bias", "backward"),
    ),
    Mutant(
        name="f5_keys_without_queries_unwritten",
        file="device/dkdv.py",
        before="    store_tile(dk_head, dk * terms.scale, j, sk, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n"
        "    store_tile(dv_head, dv, j, sk, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        after="    sk = tl.where(sq > 0, sk, 0)  # nothing to do for a sequence without queries\n"
        "    store_tile(dk_head, dk * terms.scale, j, sk, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n"
        "    store_tile(dv_head, dv, j, sk, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        outputs=("dk", "dv"),
        modelled_on="a backward that leaves early for a zero-length sequence: dK and dV of a sequence that has keys and no queries, packed or of a problem without rows, are not written, where 0 is right; sequences with queries are right, and so are declared query lengths of 0",
        needs=("packed", "backward"),
    ),
    Mutant(
        name="f5_dlse_missing_in_dq",
        file="launch.py",
        before="                ds_ptr=ds,\n                stats=stats,\n",
        after="                ds_ptr=ds,\n                stats=stats._replace(delta=delta if dlse is None else delta + dlse),\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="a gradient through the LSE that reaches one of two kernels: the kernel of dQ takes rowsum(dO * O) for delta, without dLSE: dQ and the gradients of a bias and a relative bias lack it; dK, dV, dsink and delta are right, and without such a gradient all is",
        needs=("backward",),
    ),
    Mutant(
        name="f5_distances_from_the_first_row_in_dkdv",
        file="device/dkdv.py",
        before="        head = head_terms(terms, b, hk.to(tl.int64) * sizes.group + member, q0, q_end, k_end)\n",
        after="        head = head_terms(terms, b, hk.to(tl.int64) * sizes.group + member, q0, k_end, k_end)\n",
        outputs=("dk", "dv"),
        modelled_on="the kernel of dK and dV measures the distances of ALiBi and of the relative bias from row i, not from i + keys - queries, under a bottom-right causal mask: under ALiBi its weights are off by a factor of exp(slope (keys - queries)); right where a sequence has as many keys as queries, top-left, in the forward and in dQ",
        needs=("causal", "backward"),
    ),
    Mutant(
        name="f5_last_list_lost_in_dkdv",
        file="device/selection.py",
        before="    return i, hk * sizes.group + r % sizes.group, (lane < count * packed) & (i < sizes.sq)\n",
        after="    whole = (n + 1) * selected.rows <= sizes.sq\n"
        "    return i, hk * sizes.group + r % sizes.group, (lane < count * packed) & whole & (i < sizes.sq)\n",
        outputs=("dk", "dv"),
        modelled_on="chosen keys: the queries of a last list that fewer than its number of queries share give nothing to dK and dV; right where the queries are a multiple of those that share a list, with a list for every query, in the forward and in dQ",
        subject="bundled-selected",
        needs=("backward",),
    ),
    Mutant(
        name="f5_ring_backward_with_its_own_v",
        file="ring/passes.py",
        before="            k_part, v_part = (x[:, :, part.keys] for x in held)\n            got = backward(\n",
        after="            near = held[0], v if v.shape == held[1].shape else held[1]\n"
        "            k_part, v_part = (x[:, :, part.keys] for x in near)\n"
        "            got = backward(\n",
        outputs=("dq", "dk"),
        modelled_on="a ring backward that takes the values of the first step in every step: K travels, and V stays that of the rank itself (where another rank has as many keys): dQ and dK are wrong for the keys of other ranks; dV, the forward, and a rank's own keys are right",
        subject="bundled-ring",
        needs=("backward",),
    ),
)
