"""Held-out defects of a forward and of what all kernels share, the eighteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")
_NO_LSE = ("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s18_sink_of_the_kv_head",
        file="device/forward.py",
        before="head_sink(terms.sink, h))\n",
        after="head_sink(terms.sink, h // sizes.group))\n",
        outputs=_EVERY,
        modelled_on="a head index that was divided for K and V and is used on for what query heads have of their own: the forward takes the sink of query head h // group for that of h, so that with groups all heads but head 0 have the sink of an earlier head in O and the LSE; the gradients follow O and the LSE, and dsink weighs the right sink against that LSE; groups of one, heads whose sinks are alike, rows that see no key, decoding, and all without sinks are right",
        needs=("sink", "groups"),
    ),
    Mutant(
        name="s18_keys_after_the_row_have_no_slope",
        file="device/logits.py",
        before="        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)\n",
        after="        z -= head.slope_log2 * tl.maximum(i + head.shift - j, 0).to(tl.float32)\n",
        outputs=_EVERY,
        modelled_on="ALiBi that was written for causal models: the distance is the row less the key, cut at 0, in place of its magnitude: keys after the place of the row have no penalty, whatever the slope, in all kernels (decoding too); with a causal mask of the same alignment and keys at or before the row all is right, and so is all without slopes",
        needs=("alibi",),
    ),
    Mutant(
        name="s18_padded_rows_keep_what_they_summed",
        file="device/forward.py",
        before="        acc = tl.where((i < q_end)[:, None], acc, 0.0)\n",
        after="",
        outputs=("o",),
        modelled_on="two of three accumulators that are cleared: rows past the declared query length that share a tile with declared ones keep the weighted sum of the values of full tiles, not divided by anything since their row sum is cleared, in place of O = 0; their LSE is -inf as it should be; tiles wholly past the length, tiles without a full tile of keys, declared rows, all gradients and delta, which take padded rows for empty, decoding, and all without query lengths are right",
        needs=("query_lengths",),
    ),
    Mutant(
        name="s18_far_tanh_of_half_the_logit",
        file="device/logits.py",
        before="    e = tl.exp2(size * (-2.0 * LOG2_E))\n",
        after="    e = tl.exp2(size * -LOG2_E)\n",
        outputs=_EVERY,
        modelled_on="tanh(x) from exp(x) where exp(2 x) is meant: the branch of tanh for |x| >= 1/2 gives tanh(x / 2), so that a softcapped logit whose scaled dot product is at least half the cap is capped as half of it would be, lower in magnitude and with a step at half the cap; logits below half the cap are right in the forward; 1 - tanh^2, which the backward multiplies dS by, is that of x / 2 at every x; without a softcap all is right",
        needs=("softcap",),
    ),
    Mutant(
        name="s18_threshold_of_a_signed_word",
        file="dropout.py",
        before="        return math.floor(self.p * 2**32)\n",
        after="        return math.floor(self.p * (2**31 - 1))\n",
        outputs=_NO_LSE,
        modelled_on="a random word that is taken for one from 0 to 2^31 - 1, as RAND_MAX: the words have 32 bits, so that half the share p is dropped, pairs whose word is from p 2^31 to p 2^32 being kept that are to be dropped, while what is kept is divided by 1 - p; forward and backward alike; the LSE and all without dropout are right",
        needs=("dropout",),
    ),
    Mutant(
        name="s18_lse_of_the_share_that_is_kept",
        file="device/forward.py",
        before="        divisor = divisor * dropout.keep_share\n",
        after="        divisor = divisor * dropout.keep_share\n        lse2 = m_i + tl.log2(divisor)\n",
        outputs=("lse", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="an LSE made of the divisor of O, which dropout has scaled: under dropout the LSE is too low by -log(1 - p) in every row that sees a key, so that the backward's weights are too large by 1 / (1 - p): dV is that much too large, and dS = P (dP - delta) too; O, delta, rows that see no key, and all without dropout are right",
        needs=("dropout",),
    ),
    Mutant(
        name="s18_bits_across_words_are_lost",
        file="tree_bitmap.py",
        before="    seen = (here << shift) | (last >> (WORD - shift))  # of the word before, the bits that cross into this one\n",
        after="    seen = here << shift\n",
        outputs=_EVERY,
        modelled_on="a shift of a bit table by no whole words that forgets the carry: of a tree beside a bitmap, blocks of packed sequences, a causal mask or a window, where the number of keys before the nodes is no multiple of 32, the bits that cross from one word of the tree into the next of the mask are lost: the keys before the nodes in the word in which the nodes begin are hidden from every node, and of 32 nodes those whose bits leave their word; a number that is a multiple of 32, keys in earlier words, trees without another mask, and decoding are right",
        needs=("tree",),
    ),
    Mutant(
        name="s18_relative_bias_of_the_unshifted_row",
        file="device/logits.py",
        before="terms.relative.width, i + head.shift, j, i < sq,",
        after="terms.relative.width, i, j, i < sq,",
        outputs=_EVERY,
        modelled_on="a relative position from the numbers of query and key in their own tensors: the relative bias is that of the distance key - row without the shift keys - rows of a causal mask that ends at the last key, in all kernels, while slopes have it and the gradient of the table goes to the buckets of the shifted distances; as many keys as rows, a diagonal that starts at the first key, tables that are alike at both distances, and all without a relative bias are right",
        needs=("relative_bias",),
    ),
    Mutant(
        name="s18_right_side_of_a_window_beside_causal",
        file="masking.py",
        before="    if options.causal is not None:\n        right = 0\n    if right is not None:\n",
        after="    if options.causal is not None and right is None:\n        right = 0\n    if right is not None:\n",
        outputs=_EVERY,
        modelled_on="a causal flag that only fills in for a window that is not given: of a causal mask with a window whose right side is bounded, rows see as many keys after the diagonal as the right side says, in all kernels; a right side of 0 or None, windows without causal, and causal masks without a window are right",
        needs=("causal", "window"),
    ),
)
