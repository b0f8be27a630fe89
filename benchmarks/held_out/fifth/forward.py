"""Held-out defects of a forward and its masks, the fifth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="f5_packed_diagonal_of_the_longest",
        file="device/forward.py",
        before="    band = band_of(b, q_end, k_end, mask, MASK)\n",
        after="    band = band_of(b, q_end, k_end, mask, MASK)\n"
        "    if sequences.cu_q is not None and not (BITS & MASK):\n"
        "        band = band_of(b, k_end - (sizes.sk - sizes.sq), k_end, mask, MASK)\n",
        outputs=_EVERY,
        modelled_on="a bottom-right mask of packed sequences that is aligned by the longest lengths: the forward moves the diagonal of a causal mask and a window by the keys of the longest sequence minus the rows of the longest, not by those of each sequence; right where every sequence has the same difference, top-left, beside a bitmap, tree or pattern of blocks, and in the backward, which starts from the wrong LSE",
        needs=("packed", "causal"),
    ),
    Mutant(
        name="f5_bit_tiles_skipped_by_the_first_row",
        file="device/forward.py",
        before="            if part == FULL or not (BITS & MASK) or any_visible(see):\n",
        after="            if part == FULL or not (BITS & MASK) or any_visible(see & (i == m0)[:, None]):\n",
        outputs=_EVERY,
        modelled_on="a tile that is skipped by the test of one of its rows: the forward skips a masked tile of keys under a bitmap or a tree where the first row of the tile of queries sees none of its keys: the other rows lose them; the first row of a tile, and tiles of which it sees a key, are right, and so is the mask of the backward",
        needs=("bitmap",),
    ),
    Mutant(
        name="f5_block_rows_by_the_declared_keys",
        file="device/forward.py",
        before="    limits, live_ptr = live_schedule(limits, mask.blocks, b, h, m0, sk, MASK, KEYS)\n",
        after="    limits, live_ptr = live_schedule(limits, mask.blocks, b, h, m0, k_end, MASK, KEYS)\n",
        outputs=_EVERY,
        modelled_on="a mask table laid out by one length and read by another: with key lengths the forward reads its table of live blocks as if it had a column for each block of the declared keys alone, so it walks other blocks, in all rows of blocks; right where a length reaches into the last block of keys, without lengths, and in the backward, which starts from the wrong LSE",
        needs=("blocks", "key_lengths"),
    ),
    Mutant(
        name="f5_prefix_open_to_its_own_rows",
        file="device/mask.py",
        before="        end = tl.maximum(end, band.prefix)\n",
        after="        end = tl.where(i < band.prefix, tl.maximum(end, band.prefix), end)\n",
        outputs=_EVERY,
        modelled_on="image tokens that see each other both ways, and rows behind them that are taken to see them causally anyway: a prefix is open to the rows whose number is below its length alone: in the tiles that a kernel masks the rows from there on lose its keys behind the diagonal, and in forward and dQ so may the rows that share a tile with such a row; tiles that need no mask still show them; right where no sequence has more queries than keys, and top-left",
        needs=("prefix_lengths",),
    ),
    Mutant(
        name="f5_right_side_opens_the_causal_mask",
        file="masking.py",
        before="    if options.causal is not None:\n        right = 0\n",
        after="    if options.causal is not None:\n        right = right or 0\n",
        outputs=_EVERY,
        modelled_on="a window that is asked in place of the causal flag: with both, a right side above 0 lets rows see as many keys after their own, in all kernels; a right side of 0 or None, and each of the two alone, are right",
        needs=("causal", "window"),
    ),
    Mutant(
        name="f5_channels_of_v_by_those_of_k",
        file="device/forward.py",
        before="                    v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]\n",
        after="                    v = load_tile(v_head, j, k_end, tl.minimum(sizes.d8, sizes.dv8), BLOCK_DV, False, ALIGNED)\n",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="the head dimension of q and k taken for that of V: in the forward the channels of O from D on are 0 where Dv > D; the LSE and dV are right, dQ and dK follow the O that is wrong; all is right where Dv <= D",
    ),
    Mutant(
        name="f5_draws_by_the_rows_of_the_buffer",
        file="device/forward.py",
        before="                    p = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        after="                    p = drop(p, keep_tile(q0 + i, n0, bh, dropout, BLOCK_N))\n",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="packed sequences under dropout: the forward draws by the number of the row in the buffer, the backward by that in the sequence: O drops other pairs than declared from the second sequence on (of those before which there are queries), and dQ and dK follow it; the first sequence, LSE and dV are right",
        needs=("packed", "dropout"),
    ),
    Mutant(
        name="f5_sink_forgotten_with_a_window",
        file="device/forward.py",
        before="    if terms.sink is not None:\n        m_i, l_i, alpha",
        after="    if terms.sink is not None and not (LOWER & MASK):\n        m_i, l_i, alpha",
        outputs=_EVERY,
        modelled_on="a unified kernel whose window and sinks do not go together: with a left side of a window the forward does not take the sink in; O and LSE are those without it, and all gradients follow that LSE; a window with a right side alone is right",
        needs=("sink", "window"),
    ),
    Mutant(
        name="f5_alibi_forgotten_beside_a_bias",
        file="device/logits.py",
        before="    if terms.slopes is not None:\n        z -= head.slope_log2",
        after="    if terms.slopes is not None and terms.bias.ptr is None:\n        z -= head.slope_log2",
        outputs=_EVERY,
        modelled_on="two terms that are both accepted, of which one is dropped: beside a bias the ALiBi term is left out of the logits, in all kernels; each of the two alone, and ALiBi beside a relative bias, are right",
        needs=("alibi", "bias"),
    ),
    Mutant(
        name="f5_distances_end_at_32",
        file="device/logits.py",
        before="        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)\n",
        after="        z -= head.slope_log2 * tl.minimum(tl.abs(i + head.shift - j), 32).to(tl.float32)\n",
        outputs=_EVERY,
        modelled_on="ALiBi from a table of distances that is too short: a distance above 32 counts as 32, in all kernels; rows whose keys are all nearer are right",
        needs=("alibi",),
    ),
    Mutant(
        name="f5_slopes_in_the_dtype_of_q",
        file="terms.py",
        before="options.alibi_slopes.contiguous(),\n",
        after="options.alibi_slopes.to(dtype).float().contiguous(),\n",
        outputs=_EVERY,
        modelled_on="precision: the ALiBi slopes are rounded to the dtype of q, in all kernels: logits are off by the distance times that rounding (and slopes beyond 65504 are infinite in fp16); right in fp32 and for slopes that 16 bits hold, such as powers of two",
        needs=("alibi",),
    ),
    Mutant(
        name="f5_tanh_of_twelve_bits",
        file="device/logits.py",
        before="    return tl.where(size < _BEND, near, tl.where(x < 0.0, -far, far))\n",
        after="    found = tl.where(size < _BEND, near, tl.where(x < 0.0, -far, far))\n"
        "    coarse = found * 4097.0\n"
        "    return coarse - (coarse - found)\n",
        outputs=_EVERY,
        modelled_on="precision: softcap by an approximate tanh such as the instruction of a GPU, good to a relative 2^-12: logits are imprecise by the cap times that, in all kernels and dtypes; without a softcap all is right, and where logits are small against the cap the error is small too",
        needs=("softcap",),
    ),
    Mutant(
        name="f5_scale_of_the_first_call",
        file="validation.py",
        before="    return float(scale)\n",
        after="    return check_scale.__dict__.setdefault(str(d), float(scale))  # type: ignore[no-any-return]\n",
        outputs=_EVERY,
        modelled_on="a cache of graphs whose key lacks the scale: a call whose scale is given takes the scale of the first such call with the same head dimension, forward and backward; the first one, and calls with the same scale, are right",
    ),
    Mutant(
        name="f5_lse_of_the_first_member_for_one_row",
        file="device/forward.py",
        before="    tl.store(row_ptrs(stats.lse2, stats, b, h, q0, i), lse2, mask=i < sq)\n",
        after="    kept = i < sq\n"
        "    if sequences.cu_q is not None:\n"
        "        kept = kept & ((sq > 1) | (h % sizes.group == 0))\n"
        "    tl.store(row_ptrs(stats.lse2, stats, b, h, q0, i), lse2, mask=kept)\n",
        outputs=_EVERY,
        modelled_on="ragged statistics of decoding with groups: in a packed sequence of a single query the LSE of the first query head of each group alone is written; that of the others is what the memory held, and their gradients follow it; O, longer sequences, batches that are not packed and a group of one are right",
        needs=("packed", "groups"),
    ),
)
