"""Held-out defects of a forward and its masks, the seventh set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s7_diagonal_by_places_in_the_tile",
        file="device/forward.py",
        before="            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)\n",
        after="            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)\n"
        "            if part == TRAILING and MASK == 1:\n"
        "                see = see & ((j - n0)[None, :] <= (i - m0)[:, None])\n",
        outputs=_EVERY,
        modelled_on="XunhaoLai/native-sparse-attention-triton c3afd54: a diagonal that is asked by the places within a tile (row of the tile >= column of the tile), as of square tiles of as many queries as keys: under a causal mask without a window, bits or a pattern, rows of the forward lose keys in masked tiles that do not lie on the diagonal of the tiles; right for tiles of equal sides and sequences of equal lengths",
        needs=("causal",),
    ),
    Mutant(
        name="s7_right_side_counts_on_both",
        file="masking.py",
        before="    left, right = _check_window(options.window, extent)\n",
        after="    left, right = _check_window(options.window, extent)\n    left = right if left is None else left\n",
        outputs=_EVERY,
        modelled_on="a window of one number that is taken for both sides: a window with a right side alone hides as many keys before the row too, in all kernels; right for windows with a left side, and without a window",
        needs=("window",),
    ),
    Mutant(
        name="s7_parent_zero_is_no_parent",
        file="tree.py",
        before="(seen[start + parent] if parent >= 0 else 0)",
        after="(seen[start + parent] if parent > 0 else 0)",
        outputs=_EVERY,
        modelled_on="a number that is asked as a truth value: a node whose parent is node 0 is taken for a root, so that neither it nor its descendants see node 0, in all kernels; right for chains that do not begin at node 0, and for roots",
        needs=("tree",),
    ),
    Mutant(
        name="s7_full_tile_by_its_first_row",
        file="device/forward.py",
        before="            if part == FULL or not (BITS & MASK) or any_visible(see):\n",
        after="            if part != FULL and BITS & MASK:\n"
        "                whole = tl.min(tl.where((i == m0)[:, None], see.to(tl.int32), 1)) != 0\n"
        "                see = see | (whole & (i < q_end)[:, None] & (j < k_end)[None, :])\n"
        "            if part == FULL or not (BITS & MASK) or any_visible(see):\n",
        outputs=_EVERY,
        modelled_on="PaddlePaddle/FastDeploy#3514: a builder of block masks that looks at one row of a block: a tile under a bitmap or a tree whose first row sees all of its keys counts as wholly visible in the forward, for rows too that do not see them; right where the first row of every tile sees fewer, and in the backward, which starts from the wrong O and LSE",
        needs=("bitmap",),
    ),
    Mutant(
        name="s7_packed_pattern_of_the_first_head",
        file="packed_blocks.py",
        before="        words |= live[:, :, row, column] << bit\n",
        after="        words |= live[:, :1, row, column] << bit\n",
        outputs=_EVERY,
        modelled_on="a pattern of blocks that loses its axis of heads where it is laid out for packed sequences: all query heads have the pattern of the first one, in all kernels; right where heads share a pattern, and for sequences that are not packed",
        needs=("blocks", "packed"),
    ),
    Mutant(
        name="s7_shared_by_sequences_means_by_heads",
        file="device/logits.py",
        before="    return bias.ptr + b.to(tl.int64) * bias.batch + h.to(tl.int64) * bias.head\n",
        after="    return bias.ptr + b.to(tl.int64) * bias.batch + tl.where(bias.batch == 0, 0, h.to(tl.int64) * bias.head)\n",
        outputs=_EVERY,
        modelled_on="pytorch/pytorch#184180: the offset of a bias that is broadcast in part: a bias that all sequences share (or that of a single one) is taken to be shared by the heads too, all of which have that of the first head, in all kernels, while dbias is that of each head; right where every sequence has its own, where heads share it, and for one head",
        needs=("bias",),
    ),
    Mutant(
        name="s7_alibi_by_the_key_alone",
        file="device/logits.py",
        before="        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)\n",
        after="        z += head.slope_log2 * j.to(tl.float32)\n",
        outputs=_EVERY,
        modelled_on="ALiBi as slope times the number of the key, as of causal models: the softmax of a row does not see the constant, but the LSE is too large by slope times the position of the row, and keys after the row count as nearer ones, in all kernels; O and gradients without one through the LSE are right (but for rounding) where rows see no key after their own",
        needs=("alibi",),
    ),
    Mutant(
        name="s7_relative_bias_of_a_decoder",
        file="device/logits.py",
        before="    distance = tl.minimum(tl.maximum(j - position, -reach), reach)\n",
        after="    distance = tl.minimum(tl.maximum(j - position, -reach), 0)\n",
        outputs=_EVERY,
        modelled_on="a relative bias of T5 with the buckets of its decoder: all keys after the row have the bias of distance 0, in all kernels, while the gradient of the table goes to the buckets of their distances; right under a causal mask",
        needs=("relative_bias",),
    ),
    Mutant(
        name="s7_sink_left_out_of_the_maximum",
        file="device/softmax.py",
        before="    m_new = tl.where(empty, m_i, tl.maximum(m_i, sink2))\n",
        after="    m_new = m_i\n",
        outputs=_EVERY,
        modelled_on="a sink that is added to the row sum without a part in the maximum: its exponential overflows where it is larger than all logits of a row by more than 88, so that O is 0 and the LSE infinite; every smaller sink is right",
        needs=("sink",),
    ),
    Mutant(
        name="s7_seed_of_32_bits",
        file="device/dropout.py",
        before="tl.philox(draws.seed, quad",
        after="tl.philox(draws.seed & 0xFFFFFFFF, quad",
        outputs=_EVERY,
        modelled_on="a seed that is passed as 32 bits: the high half of the key of Philox is 0, in forward and backward: other pairs are dropped than are declared for seeds from 2^32 on; smaller seeds are right",
        needs=("dropout",),
    ),
    Mutant(
        name="s7_scale_of_zero_is_the_default",
        file="validation.py",
        before="    if scale is None:\n        return 1 / math.sqrt(d)\n",
        after="    if not scale:\n        return 1 / math.sqrt(d)\n",
        outputs=_EVERY,
        modelled_on="a scale that is asked as a truth value (scale or 1 / sqrt(d)): a scale of 0 is the default one, in all kernels; every other scale is right",
    ),
    Mutant(
        name="s7_group_division_by_a_rounded_reciprocal",
        file="device/forward.py",
        before="    k_head = head_of(k_view, b, h // sizes.group, k0, ALIGNED)\n"
        "    v_head = head_of(v_view, b, h // sizes.group, k0, ALIGNED)\n",
        after="    hk = h * (256 // sizes.group) >> 8\n"
        "    k_head = head_of(k_view, b, hk, k0, ALIGNED)\n"
        "    v_head = head_of(v_view, b, hk, k0, ALIGNED)\n",
        outputs=_EVERY,
        modelled_on="a division by a multiplication with a reciprocal of 8 bits that is rounded down: the first query head of every group but the first reads K and V of the kv head before in the forward, where the group is no power of two; groups of 1, 2, 4, 8 and a single kv head are right, and so is the backward, which starts from the wrong O and LSE",
        needs=("groups",),
    ),
)
