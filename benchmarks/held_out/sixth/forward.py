"""Held-out defects of a forward and its masks, the sixth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s6_maximum_of_the_first_tile",
        file="device/softmax.py",
        before="    m_new = tl.maximum(m_i, tl.max(z, 1))\n",
        after='    m_new = tl.where(m_i == float("-inf"), tl.max(z, 1), m_i)\n',
        outputs=_EVERY,
        modelled_on="a maximum that lags behind: a row keeps the maximum of the first tile in which it sees a key, and is never rescaled: with later logits that are larger, the largest weight is not 1, which 16 bits hold exactly, but a number that is rounded, so that O is imprecise; from 16 above it in base 2 on weights are infinite in fp16, from 128 on in every dtype; rows whose maximum lies in that tile, and a single tile, are right; in all kernels with an online softmax",
    ),
    Mutant(
        name="s6_every_window_is_causal",
        file="masking.py",
        before="    if options.causal is not None:\n        right = 0\n",
        after="    if options.causal is not None or left is not None:\n        right = 0\n",
        outputs=_EVERY,
        modelled_on="a window of the kind (left, right) that a kernel takes for a causal one: without a causal mask a left side hides all keys after the row, whatever right side is asked for, in all kernels; right under a causal mask, for a right side of 0, and for a window with a right side alone",
        needs=("window",),
    ),
    Mutant(
        name="s6_wide_tile_at_the_diagonal_is_whole",
        file="device/schedule.py",
        before="    full_end = tl.maximum(sure_to, 0) // STEP * STEP\n",
        after="    full_end = tl.maximum(sure_to, 0) // STEP * STEP\n"
        "    if AXIS == KEYS and BLOCK_N > BLOCK_M:\n"
        "        full_end = tl.cdiv(tl.maximum(sure_to, 0), STEP) * STEP\n",
        outputs=_EVERY,
        modelled_on="a loop bound that is rounded up: where the tile of keys is wider than that of queries, forward, dQ and the kernels of decoding take the tile of keys in which the mask of the first row of the tile of queries ends (the diagonal, a right side, the last key, where bits begin) for wholly visible: rows see keys after their own, and keys behind the last one as products of 0, whose bias is read beyond its row; tiles of keys as wide as those of queries or narrower are right, and so are dK and dV but for the LSE",
        needs=("launch",),
    ),
    Mutant(
        name="s6_prefix_of_the_first_sequence",
        file="device/mask.py",
        before="tl.load(mask.prefix_lengths + b)",
        after="tl.load(mask.prefix_lengths)",
        outputs=_EVERY,
        modelled_on="a length that is read without the number of the sequence: all sequences have the prefix length of the first one (cut at their own keys), in all kernels; right for the first sequence, and where lengths are equal",
        needs=("prefix_lengths", "sequences"),
    ),
    Mutant(
        name="s6_tree_bits_cut_at_the_word",
        file="tree_bitmap.py",
        before="    seen = (here << shift) | (last >> (WORD - shift))  # of the word before, the bits that cross into this one\n",
        after="    seen = (here << shift) | (last & 0)\n",
        outputs=_EVERY,
        modelled_on="bits that are shifted into place and lose those that cross into the next word: where a tree stands beside a bitmap, a causal mask, a window or packed blocks, every key j with j % 32 < n % 32 is hidden from every row, in all kernels, n being the number of keys before the nodes of the sequence; right where n is a multiple of 32, and for a tree alone",
        needs=("tree",),
    ),
    Mutant(
        name="s6_bits_of_64_keys",
        file="device/mask.py",
        before="i.to(tl.int64) * bits.row + (bit >> 5)",
        after="i.to(tl.int64) * bits.row + ((bit >> 5) & 1)",
        outputs=_EVERY,
        modelled_on="a mask of 64 bits a row: the bits of a bitmap or tree from the 65th key (of a tree, node) on are taken for those of the first 64 again, in all kernels; 64 of them and fewer are right",
        needs=("bitmap",),
    ),
    Mutant(
        name="s6_bitmap_of_the_first_call",
        file="masking.py",
        before="    return bitmap.words\n",
        after="    return _check_bitmap.__dict__.setdefault(str(bitmap.words.shape), bitmap.words)\n",
        outputs=_EVERY,
        modelled_on="state: a buffer of mask bits that is filled once and kept: every call whose bitmap has the shape of an earlier one (sequences, heads, rows, words) has the bitmap of the first such call, forward and backward; the first call of each shape is right",
        needs=("bitmap",),
    ),
    Mutant(
        name="s6_values_behind_the_length_are_read",
        file="device/forward.py",
        before="                    v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]\n",
        after="                    v = load_tile(v_head, j, sk, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]\n",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="padding that is multiplied by 0: in the forward the values of keys behind the key length are read in the last tile that has keys, with weight 0: O is NaN where they hold NaN or an infinity; LSE and dV are right, finite padding changes nothing, and neither does a length that ends a tile",
        needs=("key_lengths",),
    ),
    Mutant(
        name="s6_terms_by_the_number_of_the_live_key",
        file="device/forward.py",
        before="                z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)  # [BLOCK_M, BLOCK_N]\n",
        after="                at = t + tl.arange(0, BLOCK_N)\n"
        "                z = logits(dot, i[:, None], at[None, :], q_end, k_end, terms, head, part != FULL)\n",
        outputs=_EVERY,
        modelled_on="the index of a shrunken grid used as a coordinate: under a pattern of blocks the forward takes bias, ALiBi and relative bias of the key with the number that a key has among those of live blocks; right where all blocks before are live, without these terms, and in the backward, which starts from the wrong LSE",
        needs=("blocks",),
    ),
    Mutant(
        name="s6_relative_rows_one_short",
        file="device/logits.py",
        before="    return relative.ptr + (h.to(tl.int64) * relative.width + relative.width // 2)\n",
        after="    return relative.ptr + (h.to(tl.int64) * (relative.width - 1) + relative.width // 2)\n",
        outputs=_EVERY,
        modelled_on="a table whose rows are taken to be one entry shorter than they are (2 reach, not 2 reach + 1): query head h reads the relative bias of every distance h entries too early, in all kernels: that of a distance smaller by h, and of the head before for the smallest; the first head is right",
        needs=("relative_bias",),
    ),
    Mutant(
        name="s6_cap_before_the_scale",
        file="arguments.py",
        before="        cap_ratio=None if cap is None else call.scale / cap,\n"
        "        cap_log2=None if cap is None else cap * LOG2_E,\n",
        after="        cap_ratio=None if cap is None else 1 / cap,\n"
        "        cap_log2=None if cap is None else call.scale * cap * LOG2_E,\n",
        outputs=_EVERY,
        modelled_on="softcap before the scale: logits are scale cap tanh(q k / cap) where cap tanh(scale q k / cap) is meant, forward and backward, whose derivative fits; right without a softcap and for a scale of 1, and nearly so for logits small against the cap",
        needs=("softcap",),
    ),
    Mutant(
        name="s6_tanh_as_a_ratio",
        file="device/logits.py",
        before="    far = 1.0 - _complement(size)\n",
        after="    e = tl.exp2(size * (2.0 * LOG2_E))\n    far = (e - 1.0) / (e + 1.0)\n",
        outputs=_EVERY,
        modelled_on="softcap by (e^2x - 1) / (e^2x + 1), which is inf / inf = NaN where a logit exceeds the cap 44 times, in all kernels; the LSE and O of a row with such a logit are NaN; smaller logits are right",
        needs=("softcap",),
    ),
    Mutant(
        name="s6_empty_rows_have_the_sink",
        file="device/softmax.py",
        before="    empty = l_i == 0.0\n",
        after="    empty = l_i < 0.0\n",
        outputs=("lse", "delta", "dsink"),
        modelled_on="the sink starts the softmax of every row: a row that sees no key, or is behind the query length, has the LSE of its sink, where -inf is declared; its O is 0, its delta is minus the gradient of that LSE where it sees no key, and this gradient reaches dsink; rows with a key, and the bundled decoding, are right",
        needs=("sink",),
    ),
    Mutant(
        name="s6_row_sum_in_the_dtype_of_q",
        file="device/forward.py",
        before="                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)  # p: [BLOCK_M, BLOCK_N]\n",
        after="                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)  # p: [BLOCK_M, BLOCK_N]\n"
        "                l_i = l_i.to(q.dtype).to(tl.float32)\n",
        outputs=_EVERY,
        modelled_on="precision: the running row sum of the forward is kept in the dtype of q: it is rounded to 16 bits after every tile of keys, and O and LSE are imprecise alike; fp32 is right",
    ),
)
