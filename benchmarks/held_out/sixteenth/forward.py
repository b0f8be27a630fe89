"""Held-out defects of a forward and of what all kernels share, the sixteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s16_relative_bias_from_key_to_row",
        file="device/logits.py",
        before="    distance = tl.minimum(tl.maximum(j - position, -reach), reach)\n",
        after="    distance = tl.minimum(tl.maximum(position - j, -reach), reach)\n",
        outputs=_EVERY,
        modelled_on="T5's relative_position, memory minus context, with the two in the other order: a pair has the relative bias of the opposite distance, row - key for key - row, in all kernels, while the gradient of the table goes to the buckets of the right distances; keys at the place of the row, tables that are alike on both sides, and all without a relative bias are right",
        needs=("relative_bias",),
    ),
    Mutant(
        name="s16_maximum_of_the_tile_alone",
        file="device/softmax.py",
        before="    m_new = tl.maximum(m_i, tl.max(z, 1))\n",
        after="    m_new = tl.max(z, 1)\n",
        outputs=_EVERY,
        modelled_on="an online softmax that subtracts the maximum of the tile, not the running one: the factors still fit, so that all is right but for its range; but where a row sees no key of a tile that is walked, its maximum becomes -inf: what was summed of O and of the row sum is multiplied by 2 to the old maximum, and by 0 as soon as a further tile has a key for the row; if none has, the LSE is -inf and O is right unless that product leaves fp32; where the maximum falls by more than about 128 (base 2) from one tile to the next, both overflow; in every forward (decoding, latent, quantised and chosen keys too), and the gradients follow O and the LSE; rows that see a key of every tile that is walked for them, with maxima that are close, and rows of one tile are right",
    ),
    Mutant(
        name="s16_kept_pairs_are_dropped",
        file="device/dropout.py",
        before="    even = tl.join(w0 >= limit, w2 >= limit)\n    odd = tl.join(w1 >= limit, w3 >= limit)\n",
        after="    even = tl.join(w0 < limit, w2 < limit)\n    odd = tl.join(w1 < limit, w3 < limit)\n",
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="a random number that is compared the other way round, as rand() < p for a p to drop and for one to keep: under dropout the pairs that are to be kept are dropped and those that are to be dropped are kept, so that the share p stays, and is still divided by 1 - p, in forward and backward alike; the LSE, dropout of 0, and all without dropout are right",
        needs=("dropout",),
    ),
    Mutant(
        name="s16_sink_behind_every_loop",
        file="device/forward.py",
        before="                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)  # [BLOCK_M, BLOCK_DV]\n"
        "\n"
        "    if sequences.q_lengths is not None:  # a row past the length took part in the full tiles\n"
        '        m_i = tl.where(i < q_end, m_i, float("-inf"))\n'
        "        l_i = tl.where(i < q_end, l_i, 0.0)\n"
        "        acc = tl.where((i < q_end)[:, None], acc, 0.0)\n"
        "    if terms.sink is not None:\n"
        "        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))\n"
        "        acc = acc * alpha[:, None]\n",
        after="                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)  # [BLOCK_M, BLOCK_DV]\n"
        "        if terms.sink is not None:\n"
        "            m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))\n"
        "            acc = acc * alpha[:, None]\n"
        "\n"
        "    if sequences.q_lengths is not None:  # a row past the length took part in the full tiles\n"
        '        m_i = tl.where(i < q_end, m_i, float("-inf"))\n'
        "        l_i = tl.where(i < q_end, l_i, 0.0)\n"
        "        acc = tl.where((i < q_end)[:, None], acc, 0.0)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="a line that belongs behind a loop and stands in it: a sink counts once behind each loop over the tiles of keys of the forward (that over the left edge of a window, that over whole tiles, that over the other masked ones) in a row that has seen a key until then: twice where the row sees a key in a whole tile, three times where it sees one in the loop over the left edge of a window; O is too small and the LSE too large, and the gradients follow; rows that see their first key in the last loop, decoding, and all without a sink are right",
        needs=("sink",),
    ),
    Mutant(
        name="s16_rescaled_by_powers_of_two",
        file="device/softmax.py",
        before="    p = tl.exp2(z - pivot[:, None])\n    alpha = tl.exp2(m_i - pivot)\n",
        after="    p = tl.exp2(z - pivot[:, None])\n    alpha = tl.exp2(tl.floor(m_i - pivot))  # an addition to the exponent\n",
        outputs=_EVERY,
        modelled_on="AMLA's rescaling by additions to exponents, without the maxima that are whole numbers: where a later tile raises the maximum of a row by x (base 2), what was summed before, of O and of the row sum, is multiplied by 2 to minus x rounded up, in every forward (decoding, latent, quantised and chosen keys too): earlier tiles weigh too little, by up to a half, and the LSE is too small; the gradients follow; rows whose maximum is that of their first tile, rises by whole numbers, and rows of one tile are right",
    ),
    Mutant(
        name="s16_diagonal_tiles_are_whole_in_live_blocks",
        file="device/mask.py",
        before="        see = j < row_end(i, sq, k_end, band, MASK)\n",
        after="        # the pattern says what is seen, and the walk ends at the diagonal\n"
        "        see = j < row_end(i, sq, k_end, band, MASK & 30 if SPARSE & MASK else MASK)\n",
        outputs=_EVERY,
        modelled_on="FlexAttention's block masks, which list whole blocks and partial ones apart, where a list has both: under a pattern of blocks the tiles that a causal mask or a right side of a window cuts are not masked: rows see all keys of such a tile up to the last one that counts, also those after their own, in all kernels, each with tiles of its own; tiles behind the one that the last row of a tile ends in are still not walked; whole tiles, patterns of packed sequences (which become bits), trees, and all without a pattern or without an upper edge are right",
        needs=("blocks",),
    ),
    Mutant(
        name="s16_parents_counted_from_one",
        file="tree.py",
        before="                seen.append(1 << node | (seen[start + parent] if parent >= 0 else 0))\n",
        after="                seen.append(1 << node | (seen[start + parent - 1] if parent >= 1 else 0))\n",
        outputs=_EVERY,
        modelled_on="Medusa's trees, whose number 0 is the token that is there already and whose choices count from 1: a node with parent p is taken for a child of node p - 1, and one with parent 0 for a root, in all kernels: nodes see other ancestors than theirs; roots, and trees whose nodes are all roots, are right",
        needs=("tree",),
    ),
    Mutant(
        name="s16_bias_of_the_first_tile_of_keys",
        file="device/logits.py",
        before="        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)\n",
        after="        z += load_bias(head.bias, terms.bias.row, i, j - tl.min(j), sq, k_end, MASKED)\n",
        outputs=_EVERY,
        modelled_on="a pointer to a bias that is not moved on with those to keys and values: every tile of keys takes the bias of the first one: key j of a tile that begins with key n has the bias of key j - n, in all kernels (decoding too), each with tiles of its own; the gradient of the bias is stored in the right places; the first tile of keys, a bias that begins again with every tile, and all without a bias are right",
        needs=("bias",),
    ),
    Mutant(
        name="s16_query_lengths_of_the_first_call",
        file="arguments.py",
        before="        q_lengths=options.query_lengths,\n",
        after="        q_lengths=None\n"
        "        if options.query_lengths is None\n"
        '        else sequences_of.__dict__.setdefault(f"_rows_{len(options.query_lengths)}", options.query_lengths.clone()),\n',
        outputs=_EVERY,
        modelled_on="NVIDIA/TensorRT-LLM#15556: state: a graph whose lengths are captured with it: a call with query lengths has those of the first such call with as many sequences, cut at its own rows, forward and backward alike: rows that count are taken for padding (O of 0, LSE of -inf) or padding for rows, and bottom-right masks end with another row; the first such call, later ones with equal lengths, decoding, and all without query lengths are right",
        needs=("query_lengths",),
    ),
    Mutant(
        name="s16_alibi_under_the_softcap",
        file="device/logits.py",
        before="    z = dot * terms.scale_log2 if terms.cap_log2 is None else tanh(dot * terms.cap_ratio) * terms.cap_log2\n"
        "    if terms.bias.ptr is not None:\n"
        "        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)\n"
        "    if terms.slopes is not None:\n"
        "        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)\n",
        after="    z = dot * terms.scale_log2\n"
        "    if terms.cap_log2 is not None:\n"
        "        z = dot * terms.cap_ratio * terms.cap_log2\n"
        "    if terms.slopes is not None:\n"
        "        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)\n"
        "    if terms.cap_log2 is not None:\n"
        "        z = tanh(z / terms.cap_log2) * terms.cap_log2\n"
        "    if terms.bias.ptr is not None:\n"
        "        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)\n",
        outputs=_EVERY,
        modelled_on="a softcap that is applied to all that a score is, as behind the score_mod of FlexAttention, where ALiBi is to be added behind it: logits are cap * tanh((scale q k - slope * distance) / cap), in all kernels, so that no key lies lower than minus the cap, while the derivative of the softcap stays that at scale q k / cap; a bias and a relative bias are added behind it as declared; a softcap without ALiBi, ALiBi without a softcap, and logits and distances that are small against the cap are right",
        needs=("softcap", "alibi"),
    ),
    Mutant(
        name="s16_left_side_in_whole_blocks",
        file="masking.py",
        before="        left=min(left or 0, far_left),\n",
        after="        left=min(-(-(left or 0) // 16) * 16, far_left),\n",
        outputs=_EVERY,
        modelled_on="a cache that frees its blocks of 16 keys when no row sees any of them, and a mask that goes by what is there: the left side of a window is rounded up to a multiple of 16, in all kernels (decoding, latent and quantised caches too), so that rows see up to 15 keys before their window; left sides of 0, 16, 32, ..., rows with no keys there, right sides, and all without a left side are right",
        needs=("window",),
    ),
)
