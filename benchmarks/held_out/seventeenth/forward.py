"""Held-out defects of a forward and of what all kernels share, the seventeenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s17_draws_of_the_first_sequence",
        file="device/forward.py",
        before="                    p = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        after="                    p = drop(p, keep_tile(i, n0, h, dropout, BLOCK_N))\n",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="a stream of random numbers named by the head alone: the forward keeps in every sequence, of a batch or packed, the pairs that are kept in the first one, while the backward draws by sequence and head: from the second sequence on O is that of other draws than the backward's, delta follows O and dQ and dK follow delta; the first sequence, the LSE, dV and all without dropout are right",
        needs=("dropout", "sequences"),
    ),
    Mutant(
        name="s17_left_edge_of_the_first_row",
        file="device/schedule.py",
        before="        sure_from = row_begin(last, band, MASK)\n",
        after="        sure_from = row_begin(start, band, MASK)\n",
        outputs=_EVERY,
        modelled_on="ROCm/flash-attention#158: where the mask of a window is left out is decided by the first row of a tile, not by the last, whose window begins later: tiles of keys that lie between the left edge and the right edge of the first row of a tile of rows are taken whole, and the later rows of the tile see their keys before the left side of their own windows, in the forward, dQ, decoding, latent and quantised attention; dK and dV, which walk the queries, mask rightly and are wrong by the LSE and delta alone; the first row of a tile of rows, tiles of rows whose left edges lie in one tile of keys, windows with bits beside them, and all without a left side are right",
        needs=("window",),
    ),
    Mutant(
        name="s17_sink_times_the_scale",
        file="device/forward.py",
        before="        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))\n",
        after="        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h) * terms.scale)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="sgl-project/sglang#11634: a sink that is taken for a dot product, which the scale is still to multiply: in the forward the sink of every row that sees a key is the softmax scale times what was given; the gradients follow O and the LSE, and dsink takes its weight from the sink as given; a scale of 1, sinks of 0, decoding, whose sink is a part of its own, and all without a sink are right",
        needs=("sink",),
    ),
    Mutant(
        name="s17_cap_loses_the_sign",
        file="device/logits.py",
        before="    return tl.where(size < _BEND, near, tl.where(x < 0.0, -far, far))\n",
        after="    return tl.where(size < _BEND, near, far)\n",
        outputs=_EVERY,
        modelled_on="an odd function computed from the magnitude, whose sign is put back in one of its two branches only: under a softcap a scaled dot product of minus half the cap or below is capped to the positive logit of the same size, in all kernels; the factor of its gradient, which is even, stays; logits above minus half the cap and all without a softcap are right",
        needs=("softcap",),
    ),
    Mutant(
        name="s17_distances_from_the_padded_rows",
        file="device/forward.py",
        before="    head = head_terms(terms, b, h, q0, q_end, k_end)\n",
        after="    head = head_terms(terms, b, h, q0, sq, k_end)\n",
        outputs=_EVERY,
        modelled_on="vllm-project/vllm#945, a distance from the wrong end: in the forward alone the shift from which ALiBi and the relative bias measure distances under a bottom-right causal mask ends at the last row of the tensor, not at the last that counts: where a sequence has fewer query rows than the tensor has, every row stands too early by as many keys as rows are missing: a relative bias is that of another distance, and ALiBi counts every key before the row too near by that number, which the LSE shows and O only where keys lie between the two places; the backward recomputes P at the right place against that LSE; full query lengths, top-left masks, packed sequences, decoding, and all without slopes and relative bias are right",
        needs=("query_lengths", "causal"),
    ),
    Mutant(
        name="s17_bias_scaled_in_its_own_dtype",
        file="device/logits.py",
        before="    scaled = bias.to(tl.float32) * LOG2_E\n",
        after="    scaled = (bias * LOG2_E).to(tl.float32)\n",
        outputs=_EVERY,
        modelled_on="precision: a conversion that stands behind the product: a bias is multiplied by log2(e) in the dtype of q and rounded to it before it is added in fp32, in all kernels: in fp16 and bf16 each pair has an error of up to half a unit in the last place of its scaled bias, which in fp16 is infinite beyond 45,400; fp32, biases of 0 and all without a bias are right",
        needs=("bias",),
    ),
    Mutant(
        name="s17_keys_before_the_nodes_in_their_tile",
        file="device/mask.py",
        before="mask=see & (bit >= 0), other=-1)\n",
        after="mask=see & (bit >= 0), other=0)\n",
        outputs=_EVERY,
        modelled_on="PaddlePaddle/FastDeploy#3514: bits that are not read count as not set: of a tree the keys before the first node are seen in tiles that need no mask and hidden in tiles that are masked: the last keys before the nodes, those in the tile of keys in which the nodes begin (and those in a last tile that a key length cuts before the nodes), take part for no row, in forward, dQ, dK and dV and in decoding (there under a window those in the tiles on its left edge too); nodes that begin where a tile of keys begins, trees without keys before them, trees with a bitmap or a band in attention, whose bits start at the first key, and bitmaps are right",
        needs=("tree",),
    ),
    Mutant(
        name="s17_prefix_beyond_the_keys",
        file="device/mask.py",
        before="        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0), k_end)\n",
        after="        prefix = tl.maximum(tl.load(mask.prefix_lengths + b), 0)\n",
        outputs=_EVERY,
        modelled_on="a length that is not cut to that of its sequence: where the prefix of a sequence is longer than its keys (their length, or the keys of a packed sequence), the keys between its end and that of the prefix take part in the forward and dQ as keys of 0: their logit is 0 or what a bias by distance makes of it, they take weight from the others and give nothing to O; dK and dV stop at the keys that count and are wrong by the LSE and delta alone; prefixes no longer than the keys of the sequence, and all without a prefix, are right",
        needs=("prefix_lengths",),
    ),
    Mutant(
        name="s17_channels_of_v_for_k",
        file="device/forward.py",
        before="                    k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]\n",
        after="                    k = load_tile(k_head, j, k_end, sizes.dv8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="XunhaoLai/native-sparse-attention-triton#27, a head dimension of the other tensor: the forward loads the tile of K up to the channels of V: where D is no power of two (from 16 on) and V has fewer channels than K, the dot products lack the channels of q and K from Dv on, and the gradients, recomputed from whole dot products, have the LSE of these; a D that is a power of two, a Dv of at least D, and decoding are right",
    ),
    Mutant(
        name="s17_cut_block_is_lost",
        file="device/schedule.py",
        before="    return before * size + (after - before) * (x % size)\n",
        after="    return before * size\n",
        outputs=_EVERY,
        modelled_on="a limit in blocks rounded down: under a pattern of live blocks a walk that ends inside a live block ends before that block, in all kernels: the keys of the block on the diagonal of a causal mask or on the right side of a window, and those of a last block that the keys do not fill (or their length cuts), are lost in forward and dQ, and the last queries of a block that the rows do not fill in dK and dV; where the walk over whole tiles would begin inside a block (at the left edge of a window in forward and dQ, at the diagonal in dK and dV) it begins with the block, without a mask; limits that are multiples of the block, dead blocks, packed sequences, whose blocks are bits, and all without blocks are right",
        needs=("blocks",),
    ),
)
