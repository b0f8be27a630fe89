"""Held-out defects of a forward and of what all kernels share, the fifteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s15_relative_bias_without_a_sign",
        file="device/logits.py",
        before="    distance = tl.minimum(tl.maximum(j - position, -reach), reach)\n",
        after="    distance = tl.minimum(tl.abs(j - position), reach)\n",
        outputs=_EVERY,
        modelled_on="T5's bidirectional buckets, whose sign is an offset that was forgotten when the distance became its magnitude: keys before the place of a row have the relative bias of the key as far after it, in all kernels, while the gradient of the table goes to the buckets of the signed distances; keys at or after the place of the row, tables that are alike on both sides, and all without a relative bias are right",
        needs=("relative_bias",),
    ),
    Mutant(
        name="s15_left_side_of_the_first_row_of_the_tile",
        file="device/mask.py",
        before="            see = see & (j >= i + band.low)\n",
        after="            see = see & (j >= tl.min(i) + band.low)\n",
        outputs=_EVERY,
        modelled_on="a window that is asked once for a tile of rows, as of kernels that skip whole tiles: every row has the left side of the first row of its tile of rows (of the tile of queries that dK and dV walk, too), so that it sees as many keys before its window as it lies behind that row, in all kernels (decoding too, whose tile holds the rows of all heads of a group); first rows of tiles, a single row, the right side, and all without a left side are right",
        needs=("window",),
    ),
    Mutant(
        name="s15_slopes_of_the_paper",
        file="terms.py",
        before="        slopes=None if options.alibi_slopes is None else options.alibi_slopes.contiguous(),\n",
        after="        slopes=None\n"
        "        if options.alibi_slopes is None\n"
        "        else torch.exp2(-8.0 / max(extent.heads, 1) * torch.arange(1, extent.heads + 1, device=extent.device)),\n",
        outputs=_EVERY,
        modelled_on="xformers' LowerTriangularMaskWithAlibi and others, which make the slopes themselves: whatever slopes are given, head h of H has 2^(-8 (h + 1) / H), those of the ALiBi paper, in all kernels, decoding too; given slopes that are these, and all without slopes, are right",
        needs=("alibi",),
    ),
    Mutant(
        name="s15_light_tiles_left_out",
        file="device/softmax.py",
        before="    m_new = tl.maximum(m_i, tl.max(z, 1))\n",
        after="    light = tl.max(z, 1) < m_i - 6.0  # they weigh next to nothing\n"
        '    z = tl.where(light[:, None], float("-inf"), z)\n'
        "    m_new = tl.maximum(m_i, tl.max(z, 1))\n",
        outputs=_EVERY,
        modelled_on="NVIDIA/TensorRT-LLM's skip-softmax attention, with a threshold that is far too large: in a row a tile of keys whose largest logit lies more than 6 (base 2) below the maximum of the tiles before is left out, of O and of the row sum, in every forward (decoding, latent, quantised and chosen keys too); the gradients count all keys, from the LSE of the others; rows each of whose tiles comes within 6 of the maximum before it, and the first tile of a row, are right",
    ),
    Mutant(
        name="s15_mask_behind_the_exponential",
        file="device/softmax.py",
        before="    if MASKED:\n"
        '        z = tl.where(see, z, float("-inf"))\n'
        "    m_new = tl.maximum(m_i, tl.max(z, 1))\n"
        '    pivot = tl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new\n'
        "    p = tl.exp2(z - pivot[:, None])\n"
        "    alpha = tl.exp2(m_i - pivot)\n"
        "    return p, m_new, l_i * alpha + tl.sum(p, 1), alpha\n",
        after="    m_new = tl.maximum(m_i, tl.max(z, 1))\n"
        '    pivot = tl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new\n'
        "    p = tl.exp2(z - pivot[:, None])\n"
        "    alpha = tl.exp2(m_i - pivot)\n"
        "    l_new = l_i * alpha + tl.sum(p, 1)\n"
        "    if MASKED:\n"
        "        p = tl.where(see, p, 0.0)\n"
        "    return p, m_new, l_new, alpha\n",
        outputs=_EVERY,
        modelled_on="weights that are masked where logits are to be: in tiles that need a mask hidden keys, and the padding behind the last key with a product of 0, count in the row sum (and in the maximum), though not in O: O is too small, the LSE too large, that of rows without keys finite, in every forward (decoding, latent, quantised and chosen keys too); whole tiles, and tiles that are skipped, are right",
    ),
    Mutant(
        name="s15_prefixes_of_the_first_call",
        file="masking.py",
        before="        prefix_lengths=options.prefix_lengths,\n",
        after="        prefix_lengths=None\n"
        "        if options.prefix_lengths is None\n"
        '        else check_mask.__dict__.setdefault(f"_prefixes_{sequences}", options.prefix_lengths.clone()),\n',
        outputs=_EVERY,
        modelled_on="flashinfer-ai/flashinfer#1028: state: metadata of a mask that is built once and kept by the number of sequences: a call with prefixes has the prefix lengths of the first call with as many sequences, cut at its own keys, forward and backward alike; the first such call, later ones with equal lengths, and all without prefixes are right",
        needs=("prefix_lengths",),
    ),
    Mutant(
        name="s15_whole_tiles_are_not_capped",
        file="device/logits.py",
        before="    z = dot * terms.scale_log2 if terms.cap_log2 is None else tanh(dot * terms.cap_ratio) * terms.cap_log2\n",
        after="    if terms.cap_log2 is None or not MASKED:\n"
        "        z = dot * terms.scale_log2\n"
        "    else:\n"
        "        z = tanh(dot * terms.cap_ratio) * terms.cap_log2\n",
        outputs=_EVERY,
        modelled_on="Dao-AILab/flash-attention#2402: FlashAttention-2's two loops over the keys, of which the one with masks alone has the softcap: in tiles of keys that need no mask the logits of the forward, of dQ and of decoding are not capped; dK and dV cap all of them, from the LSE of the others, and the derivative is that of the softcap everywhere; rows whose tiles all need a mask, logits that are small against the cap, and all without a softcap are right",
        needs=("softcap",),
    ),
    Mutant(
        name="s15_one_word_of_bits_for_a_tile",
        file="device/mask.py",
        before="            word = tl.load(bits.ptr + i.to(tl.int64) * bits.row + (bit >> 5), mask=",
        after="            first = tl.maximum(tl.min(bit), 0) >> 5  # of the tile\n"
        "            word = tl.load(bits.ptr + i.to(tl.int64) * bits.row + first + bit * 0, mask=",
        outputs=_EVERY,
        modelled_on="a word of a mask that is loaded once for a tile of 32 keys by a kernel whose tiles grew wider: all keys of a tile have the bits of the word in which the first key of the tile (of a tree the first node in it) lies, each by its place within its own word, in all kernels: of a bitmap the 33rd and later keys of a tile take the bits of the keys 32, 64, 96 before; tiles of up to 32 keys of a bitmap, rows whose words are alike, and all without bits are right",
    ),
    Mutant(
        name="s15_sink_in_natural_units",
        file="device/logits.py",
        before="    return _clamp(tl.load(sink_ptr + h) * LOG2_E, _LARGEST)\n",
        after="    return _clamp(tl.load(sink_ptr + h), _LARGEST)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta", "dsink", "dbias", "drelative_bias"),
        modelled_on="meta-pytorch/segment-anything-fast#71: a number in natural units among logits in base 2: a sink counts ln 2 times, so 0.69 of it, in O and the LSE of the forward; the gradients follow that LSE, but for the sink's own, which weighs rows by the whole sink; sinks of 0, decoding, and all without a sink are right",
        needs=("sink",),
    ),
    Mutant(
        name="s15_maximum_anew_in_each_loop",
        file="device/forward.py",
        before="        start, stop = segment(limits, part)\n",
        after="        start, stop = segment(limits, part)\n"
        '        m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)\n',
        outputs=_EVERY,
        modelled_on="a state that each of several loops begins anew, and that the rescaling relies on: the forward resets the running maximum, and not O and the row sum, before each of its loops (tiles at the left edge of a window, whole tiles, tiles that need a mask): what the loops before had summed is multiplied by exp(-inf) = 0 in the first tile of the next one, so that a row is the softmax over the keys that it sees in the last loop that has tiles (O of 0 and an LSE of -inf where it sees none of them); where the last of the loops has no tile the LSE is -inf, and O is that of the loop before, or 0 where a sink joins; tiles of rows whose tiles of keys are all walked in the last loop are right",
    ),
)
