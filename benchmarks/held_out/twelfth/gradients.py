"""Held-out defects of a backward, the twelfth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s12_cap_slope_before_delta",
        file="device/dkdv.py",
        before="                    dsT = score_gradient(pT, dpT, delta, see, part != FULL)\n"
        "                    dsT = dot_gradient(dsT, dotT, terms.cap_ratio)\n",
        after="                    dpT = dot_gradient(dpT, dotT, terms.cap_ratio)\n"
        "                    dsT = score_gradient(pT, dpT, delta, see, part != FULL)\n",
        outputs=("dk",),
        modelled_on="Dao-AILab/flash-attention#2402: a derivative that is multiplied into one of two terms: in dK the derivative of the softcap is that of dP alone, P * (slope * dP - delta), where P * (dP - delta) * slope is meant; dQ and dV are right, and so is dK without a softcap or where logits are small against it",
        needs=("backward", "softcap"),
    ),
    Mutant(
        name="s12_dsink_in_base_2",
        file="reductions.py",
        before="    return -(weight * torch.where(counts, delta, 0.0)).sum((0, 2)).to(torch.float32)\n",
        after="    return -(weight * torch.where(counts, delta, 0.0)).sum((0, 2)).div(LOG2_E).to(torch.float32)\n",
        outputs=("dsink",),
        modelled_on="a gradient by the variable that the kernel has, not by that of the caller: the gradient of the sink is that of the sink times log2(e), so ln 2 times the right one; everything else is right",
        needs=("backward", "sink"),
    ),
    Mutant(
        name="s12_drelative_of_a_decoder",
        file="reductions.py",
        before="    return torch.cat([ends[0], near.sum((0, 2), dtype=torch.float64), ends[1]], 1)\n",
        after="    sums = torch.cat([ends[0], near.sum((0, 2), dtype=torch.float64), ends[1]], 1)\n"
        "    return torch.where(torch.arange(sums.shape[1], device=sums.device) <= reach, sums, 0.0)\n",
        outputs=("drelative_bias",),
        modelled_on="a gradient that was written for a decoder: in the gradient of a relative bias the pairs whose key comes after the place of the row give nothing, to any bucket; right under a causal mask, and so are the forward and all other gradients",
        needs=("backward", "relative_bias"),
    ),
    Mutant(
        name="s12_ds_rows_as_wide_as_the_declared_keys",
        file="device/dq.py",
        before="                    at = row_numbers(stats, b, h, q0, i)[:, None] * sizes.sk + j[None, :]\n",
        after="                    at = row_numbers(stats, b, h, q0, i)[:, None] * k_end + j[None, :]\n",
        outputs=("dbias", "drelative_bias"),
        modelled_on="a buffer that is laid out by one length and read by another: dS is written in rows as wide as the sequence has keys that count, and read in rows as wide as there is room for keys: the gradients of a bias and of a relative bias hold dS of other pairs where a key length or a packed sequence is shorter than that; full lengths, dQ, dK and dV are right",
        needs=("backward",),
    ),
    Mutant(
        name="s12_limits_squeezed_once_per_member",
        file="device/dkdv.py",
        before="        live, live_ptr = live_schedule(limits, mask.blocks, b, h, n0, sq, MASK, QUERIES)\n"
        "        # without a lower edge and bits, nothing follows the full tiles\n"
        "        for part in tl.static_range(\n"
        "            LEADING if (UPPER | BITS) & MASK == UPPER else FULL, TRAILING + (1 if (LOWER | BITS) & MASK else 0)\n"
        "        ):\n"
        "            start, stop = segment(live, part)\n",
        after="        limits, live_ptr = live_schedule(limits, mask.blocks, b, h, n0, sq, MASK, QUERIES)\n"
        "        # without a lower edge and bits, nothing follows the full tiles\n"
        "        for part in tl.static_range(\n"
        "            LEADING if (UPPER | BITS) & MASK == UPPER else FULL, TRAILING + (1 if (LOWER | BITS) & MASK else 0)\n"
        "        ):\n"
        "            start, stop = segment(limits, part)\n",
        outputs=("dk", "dv"),
        modelled_on="XunhaoLai/native-sparse-attention-triton 1a88784: a loop variable that is reassigned and then used: under a pattern of blocks the kernel of dK and dV takes the limits of its walk among the live blocks of the query head before as positions of the sequence: from the second query head of a group on it leaves out live blocks; groups of one, patterns without a dead block of queries, and dQ are right",
        needs=("backward", "blocks", "groups"),
    ),
    Mutant(
        name="s12_dv_times_the_scale",
        file="device/dkdv.py",
        before="    store_tile(dv_head, dv, j,",
        after="    store_tile(dv_head, dv * terms.scale, j,",
        outputs=("dv",),
        modelled_on="a factor that is copied with its line: dV is multiplied by the softmax scale, as dK is; right for a scale of 1; dQ and dK are right",
        needs=("backward",),
    ),
    Mutant(
        name="s12_dp_of_128_channels_in_dq",
        file="device/dq.py",
        before="    do = load_tile(do_head, i, q_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_M, BLOCK_DV]\n",
        after="    do = load_tile(do_head, i, q_end, tl.minimum(sizes.dv8, 16), BLOCK_DV, False, ALIGNED)  # [BLOCK_M, BLOCK_DV]\n",
        outputs=("dq", "dbias", "drelative_bias"),
        modelled_on="XunhaoLai/native-sparse-attention-triton#27: a width of V that was true of all models once: the kernel of dQ, and of the gradients of a bias and a relative bias, takes dP from the first 128 channels of dO and V; values of up to 128 channels, dK and dV are right",
        needs=("backward",),
    ),
    Mutant(
        name="s12_keys_behind_the_length_in_dq",
        file="device/dq.py",
        before="                    k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]\n",
        after="                    k = load_tile(k_head, j, sk, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]\n",
        outputs=("dq",),
        modelled_on="Dao-AILab/flash-attention#2374: padding that is multiplied by 0: the kernel of dQ reads the keys behind the key length in the last tile that has keys, where dS is 0: dQ is NaN where they hold NaN or an infinity; finite padding changes nothing, and neither does a length that ends a tile; dK, dV and the forward are right",
        needs=("backward", "key_lengths"),
    ),
)
