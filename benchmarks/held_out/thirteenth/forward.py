"""Held-out defects of a forward and its masks, the thirteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s13_window_right_then_left",
        file="masking.py",
        before="    left, right = _check_window(options.window, extent)\n",
        after="    right, left = _check_window(options.window, extent)\n",
        outputs=_EVERY,
        modelled_on="two orders of the sides of a window, (left, right) and (right, left): the left side is taken for the right one and the right one for the left, in all kernels; under a causal mask, which is the right side, the left side is lost; a window whose sides are equal is right without a causal mask",
        needs=("window",),
    ),
    Mutant(
        name="s13_bits_below_the_diagonal_not_asked",
        file="device/mask.py",
        before="    return tl.minimum(end, bits_start) if BITS & MASK else end\n",
        after="    return tl.minimum(end, bits_start) if BITS & MASK and not (UPPER & MASK) else end\n",
        outputs=_EVERY,
        modelled_on="PaddlePaddle/FastDeploy#3514: a lower triangle that is taken to be unmasked: where a bitmap stands beside a causal mask or a right side of a window (and under a tree), forward, dQ and decoding do not read the bits of tiles of keys that lie wholly before the diagonal of the tile of rows, whose keys all count as shown; dK and dV ask the bits, with the LSE of the others; tiles that the diagonal cuts, and a bitmap alone, are right",
        needs=("bitmap", "causal"),
    ),
    Mutant(
        name="s13_second_half_of_the_rows_masked_as_the_first",
        file="device/forward.py",
        before="            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)\n",
        after="            rows = m0 + tl.arange(0, BLOCK_M) % 64  # of a warp group\n"
        "            see = visible(rows[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)\n",
        outputs=_EVERY,
        modelled_on="a tile of 128 rows that two warp groups share, each of which counts its rows from the first one of the tile: in tiles of keys that need a mask the rows 64 to 127 of a tile of rows have the mask of the rows 64 before them, in the forward; the backward has the right mask and the wrong LSE; tiles of up to 64 rows, tiles of keys without a mask, and masks that are the same for all rows are right",
        needs=("launch",),
    ),
    Mutant(
        name="s13_later_roots_hang_on_the_first_node",
        file="tree.py",
        before="                seen.append(1 << node | (seen[start + parent] if parent >= 0 else 0))\n",
        after="                seen.append(1 << node | (seen[start + max(parent, 0)] if node else 0))\n",
        outputs=_EVERY,
        modelled_on="EAGLE's draft trees, which have one root: a parent of -1 that is clamped to a valid index: every root but the first node counts as a child of node 0, which it and its descendants see, in all kernels; a tree whose only root is node 0 is right",
        needs=("tree",),
    ),
    Mutant(
        name="s13_diagonal_starts_behind_the_prefix",
        file="device/mask.py",
        before="    return Band(shift - mask.left, shift + mask.right, prefix)\n",
        after="    return Band(shift - mask.left, shift + mask.right + prefix, prefix)\n",
        outputs=_EVERY,
        modelled_on="a prefix that is taken for keys before the first row, as of a cache, where it is a part of the rows' own keys: the causal diagonal is moved to the right by the length of the prefix, so that every row sees as many keys after its own, in all kernels; a prefix of length 0, and rows that see all keys anyway, are right",
        needs=("prefix_lengths",),
    ),
    Mutant(
        name="s13_search_of_sequences_ends_a_step_early",
        file="arguments.py",
        before="        halvings=0 if packed is None else (packed.sequences - 1).bit_length(),\n",
        after="        halvings=0 if packed is None else max(packed.sequences.bit_length() - 1, 0),\n",
        outputs=_EVERY,
        modelled_on="Dao-AILab/flash-attention#2194: a binary search whose number of steps is a logarithm that is rounded down: of packed sequences those behind the largest power of two of them (of 3 the third, of 5 to 7 the fifth to the seventh) are never found: their rows, and the dK and dV of their keys, are what the memory held, in all kernels and in delta; 1, 2, 4, 8 sequences, the first ones, and what is not packed are right",
        needs=("packed", "sequences"),
    ),
    Mutant(
        name="s13_product_of_the_tile_before_not_rescaled",
        file="device/forward.py",
        before="    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)\n"
        "    limits = tile_schedule(m0, q_end, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)\n"
        "    limits, live_ptr = live_schedule(limits, mask.blocks, b, h, m0, sk, MASK, KEYS)\n"
        "    for part in tl.static_range(LEADING if (LOWER | BITS) & MASK == LOWER else FULL, TRAILING + 1):\n"
        "        start, stop = segment(limits, part)\n"
        "        for t in range(start, stop, BLOCK_N):\n"
        "            n0 = spread(t, live_ptr, mask.blocks.keys, MASK)\n"
        "            j = n0 + tl.arange(0, BLOCK_N)  # [BLOCK_N]\n"
        "            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)\n"
        "            if part == FULL or not (BITS & MASK) or any_visible(see):\n"
        "                if k_tiles is None:\n"
        "                    k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]\n"
        "                else:\n"
        "                    k = fetch_tile(k_tiles, b, h // sizes.group, n0, BLOCK_N, BLOCK_D)\n"
        "                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n"
        "                z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)  # [BLOCK_M, BLOCK_N]\n"
        "                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)  # p: [BLOCK_M, BLOCK_N]\n"
        "                if dropout.keep_share is not None:\n"
        "                    p = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))\n"
        "                if v_tiles is None:\n"
        "                    v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]\n"
        "                else:\n"
        "                    v = fetch_tile(v_tiles, b, h // sizes.group, n0, BLOCK_N, BLOCK_DV)\n"
        "                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)  # [BLOCK_M, BLOCK_DV]\n",
        after="    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)\n"
        "    product = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)  # of the tile before, added while the next one is made\n"
        "    limits = tile_schedule(m0, q_end, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)\n"
        "    limits, live_ptr = live_schedule(limits, mask.blocks, b, h, m0, sk, MASK, KEYS)\n"
        "    for part in tl.static_range(LEADING if (LOWER | BITS) & MASK == LOWER else FULL, TRAILING + 1):\n"
        "        start, stop = segment(limits, part)\n"
        "        for t in range(start, stop, BLOCK_N):\n"
        "            n0 = spread(t, live_ptr, mask.blocks.keys, MASK)\n"
        "            j = n0 + tl.arange(0, BLOCK_N)  # [BLOCK_N]\n"
        "            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)\n"
        "            if part == FULL or not (BITS & MASK) or any_visible(see):\n"
        "                if k_tiles is None:\n"
        "                    k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]\n"
        "                else:\n"
        "                    k = fetch_tile(k_tiles, b, h // sizes.group, n0, BLOCK_N, BLOCK_D)\n"
        "                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n"
        "                z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)  # [BLOCK_M, BLOCK_N]\n"
        "                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)  # p: [BLOCK_M, BLOCK_N]\n"
        "                if dropout.keep_share is not None:\n"
        "                    p = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))\n"
        "                if v_tiles is None:\n"
        "                    v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]\n"
        "                else:\n"
        "                    v = fetch_tile(v_tiles, b, h // sizes.group, n0, BLOCK_N, BLOCK_DV)\n"
        "                acc = acc * alpha[:, None] + product\n"
        "                product = tl.dot(p.to(v.dtype), v, input_precision=PRECISION)  # [BLOCK_M, BLOCK_DV]\n"
        "    acc = acc + product\n",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="FlashAttention-3's pipeline, which multiplies the weights of a tile by V while the logits of the next one are made: the product of a tile of keys is added behind the rescaling by the next tile, not before it: where the next tile raises the maximum of a row by x (base 2), what the tile before it gave to O is 2^x times too large; the tiles before that, one tile of keys, rows whose maximum does not grow, LSE and dV are right",
    ),
    Mutant(
        name="s13_sink_in_the_maximum_alone",
        file="device/softmax.py",
        before="    return m_new, tl.where(empty, 0.0, l_i * alpha + tl.exp2(sink2 - pivot)), alpha\n",
        after="    return m_new, tl.where(empty, 0.0, l_i * alpha), alpha\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="gpt-oss kernels that start the maximum with the sink, and the row sum with 0 where it is to be 1: the sink has no weight: O and LSE are those without a sink (with a far larger sink weights vanish), and gradients follow that LSE; without sinks, and in decoding, all is right",
        needs=("sink",),
    ),
    Mutant(
        name="s13_lse_by_rows_then_heads_in_bshd",
        file="launch.py",
        before="        enable_fp_fusion=False,  # see `online_step`\n    )\n    return ForwardResult(o, lse2)\n",
        after="        enable_fp_fusion=False,  # see `online_step`\n    )\n"
        '    if options.layout == "bshd":\n'
        "        lse2 = lse2.transpose(1, 2).reshape(lse2.shape)\n"
        "    return ForwardResult(o, lse2)\n",
        outputs=("lse", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="vllm-project/vllm#57012: an LSE whose layout follows that of q: with tensors [B, S, H, D] the LSE is written as (rows, heads) and read as (heads, rows), so that it belongs to other rows and heads of its sequence; gradients follow it; O is right, and so are tensors [B, H, S, D], one head and one row",
    ),
    Mutant(
        name="s13_philox_of_seven_rounds",
        file="device/dropout.py",
        before="draws.offset.to(tl.uint32))\n",
        after="draws.offset.to(tl.uint32), n_rounds=7)\n",
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="FlashAttention-2's Philox, which has seven rounds, beside torch's and Triton's, which has ten: other pairs are dropped than are declared, in forward and backward alike; the share that is dropped and the LSE are right, and so is all without dropout",
        needs=("dropout",),
    ),
    Mutant(
        name="s13_alibi_added",
        file="device/logits.py",
        before="        z -= head.slope_log2 * tl.abs(",
        after="        z += head.slope_log2 * tl.abs(",
        outputs=_EVERY,
        modelled_on="libraries of which some hold ALiBi's slopes as negative numbers: slope times distance is added to the logits, not subtracted, in all kernels: keys that are farther weigh more; right without slopes",
        needs=("alibi",),
    ),
    Mutant(
        name="s13_bias_in_whole_eights",
        file="device/logits.py",
        before="    keep = (i < sq) & (j < k_end) if MASKED else i < sq\n    bias = tl.load(",
        after="    keep = (i < sq) & (j < k_end // 8 * 8) if MASKED else i < sq\n    bias = tl.load(",
        outputs=_EVERY,
        modelled_on="PyTorch's memory-efficient kernels, which read a bias by vectors of eight elements: the bias of the keys behind the last multiple of eight is not read and counts as 0, in all kernels; numbers of keys that are multiples of eight, and the keys before, are right",
        needs=("bias",),
    ),
    Mutant(
        name="s13_softcap_of_the_first_call",
        file="arguments.py",
        before="    terms, cap, table = call.terms, call.terms.softcap, call.terms.by_distance\n",
        after="    terms, cap, table = call.terms, call.terms.softcap, call.terms.by_distance\n"
        "    if cap is not None:\n"
        "        cap = logit_terms.__dict__.setdefault(str((call.d, call.dv)), cap)\n",
        outputs=_EVERY,
        modelled_on="Dao-AILab/flash-attention#2402: state: a cache of compiled kernels whose key says that there is a softcap and not which: a call with a softcap takes that of the first one with the same head dims, in forward and backward alike; the first one, calls with the same softcap and those without one are right",
        needs=("softcap",),
    ),
)
