"""Held-out defects of a forward and its masks, the twelfth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s12_window_alone_ends_at_the_last_key",
        file="masking.py",
        before='    align_end = options.causal == "bottom-right"\n',
        after='    align_end = options.causal == "bottom-right" or (options.causal is None and options.window is not None)\n',
        outputs=_EVERY,
        modelled_on="NVIDIA/TransformerEngine#1197: two conventions of a window: one without a causal mask is centred on the diagonal that ends at the last key, not on that which starts at the first one, in all kernels; right where a sequence has as many keys as queries, and beside a causal mask; distances of ALiBi and of a relative bias stay where they are",
        needs=("window",),
    ),
    Mutant(
        name="s12_true_means_hidden",
        file="bitmap.py",
        before="        return cls(pack(see))\n",
        after="        return cls(pack(~see))\n",
        outputs=_EVERY,
        modelled_on="torch.nn.MultiheadAttention, whose masks are True where a key is hidden, beside SDPA, whose masks are True where it is seen: a bitmap hides what it is to show and shows what it is to hide, in all kernels; other parts of the mask are right",
        needs=("bitmap",),
    ),
    Mutant(
        name="s12_tree_verified_as_a_chain",
        file="tree.py",
        before="                seen.append(1 << node | (seen[start + parent] if parent >= 0 else 0))\n",
        after="                seen.append((2 << node) - 1)\n",
        outputs=_EVERY,
        modelled_on="a draft tree that is verified by the causal mask of a chain: a node sees every node before it, of other branches too, in all kernels; a tree that is one chain is right, and so are the keys before the nodes",
        needs=("tree",),
    ),
    Mutant(
        name="s12_prefix_in_whole_blocks",
        file="device/mask.py",
        before="        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0), k_end)\n",
        after="        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0) // 16 * 16, k_end)\n",
        outputs=_EVERY,
        modelled_on="a prefix that is cached in whole blocks of 16 keys: the prefix of every sequence is shortened to a multiple of 16, so that one of fewer than 16 keys is none, in all kernels; multiples of 16, and rows that see the keys behind anyway, are right",
        needs=("prefix_lengths",),
    ),
    Mutant(
        name="s12_last_row_by_the_tile_of_keys",
        file="device/schedule.py",
        before="        last = tl.minimum(start + BLOCK_M, sq) - 1\n",
        after="        last = tl.minimum(start + BLOCK_N, sq) - 1\n",
        outputs=_EVERY,
        modelled_on="jax-ml/jax#17314: the tile of the wrong axis in a loop bound: the walk over the keys, of forward, dQ and decoding, takes the last row of a tile of queries to be as many behind its first one as a tile of keys is wide: where tiles of keys are narrower than tiles of queries, the rows behind lose the tiles of keys after the end of that row under a causal mask or a right side, and see keys before their window; as wide or wider tiles of keys are right, and so are dK and dV of a right LSE",
    ),
    Mutant(
        name="s12_diagonal_divided_by_the_group",
        file="device/forward.py",
        before="            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)\n",
        after="            see = visible(\n"
        "                i[:, None] // sizes.group, j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL\n"
        "            )\n",
        outputs=_EVERY,
        modelled_on="Dao-AILab/flash-attention#2528: a flag that says that the heads of a group are packed into the rows, where they are not: in tiles that need a mask the forward gives row i the mask of row i // group; the backward has the right mask and the wrong LSE; right without groups, in the first row, in tiles that need no mask, and where every row sees every key",
        needs=("groups",),
    ),
    Mutant(
        name="s12_alpha_in_the_natural_base",
        file="device/softmax.py",
        before="    p = tl.exp2(z - pivot[:, None])\n    alpha = tl.exp2(m_i - pivot)\n",
        after="    p = tl.exp2(z - pivot[:, None])\n    alpha = tl.exp(m_i - pivot)\n",
        outputs=_EVERY,
        modelled_on="one of two exponentials in the wrong base: where a later tile of keys raises the maximum of a row by x (base 2), what was summed before, of O and of the row sum, is rescaled by e^-x, not by 2^-x, in all forwards; right for one tile of keys, and where the largest logit stands in the first one",
    ),
    Mutant(
        name="s12_lse_of_tiles_in_the_other_order",
        file="device/forward.py",
        before="    tl.store(row_ptrs(stats.lse2, stats, b, h, q0, i), lse2, mask=i < sq)\n",
        after="    started = tl.cdiv(sq, BLOCK_M) - 1 - tile  # the last tile starts first\n"
        "    row = started * BLOCK_M + tl.arange(0, BLOCK_M)\n"
        "    tl.store(row_ptrs(stats.lse2, stats, b, h, q0, row), lse2, mask=(row >= 0) & (row < sq))\n",
        outputs=("lse", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="a tile that has two numbers, by its place and by the order in which tiles start: the LSE of tile t of T tiles of rows is stored for the rows of tile T - 1 - t (that of padding, where the last tile has fewer rows); O is right, gradients follow the LSE of other rows, and one tile of rows, or the middle one, is right",
    ),
    Mutant(
        name="s12_lse_times_ln_2_twice",
        file="results.py",
        before="        return self.lse2 * math.log(2)\n",
        after="        return self.lse2 * math.log(2) * math.log(2)\n",
        outputs=("lse",),
        modelled_on="pytorch/pytorch#181645: an LSE that two layers convert to natural units: the returned LSE is ln 2 times the right one; O and all gradients are right, and so is the LSE of decoding, and of a row without keys; chunks and a ring, which are merged by it, have the wrong weights",
    ),
    Mutant(
        name="s12_draws_by_the_row_in_the_tile",
        file="device/forward.py",
        before="                    p = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))\n",
        after="                    p = drop(p, keep_tile(i - m0, n0, bh, dropout, BLOCK_N))\n",
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="pytorch/pytorch#190717: a counter within the tile where one of the whole sequence is meant: under dropout the forward drops the pairs of a row by the draws of the row with its place in the first tile of rows, the backward by its own; the first tile of rows, the LSE, and all without dropout are right",
        needs=("dropout",),
    ),
    Mutant(
        name="s12_random_words_with_a_sign",
        file="device/dropout.py",
        before="    limit = draws.threshold.to(tl.uint32)\n",
        after="    limit = draws.threshold.to(tl.uint32).to(tl.int32, bitcast=True)\n"
        "    w0, w1 = w0.to(tl.int32, bitcast=True), w1.to(tl.int32, bitcast=True)\n"
        "    w2, w3 = w2.to(tl.int32, bitcast=True), w3.to(tl.int32, bitcast=True)\n",
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="words of 32 bits without a sign that are compared as numbers with one: under dropout pairs whose word is 2^31 or more are dropped too for p below 1/2 (half of all more than declared), and for p from 1/2 on those whose word is below 2^31 are kept too (half of all), in forward and backward alike; which are divided by 1 - p as before; the LSE is right",
        needs=("dropout",),
    ),
    Mutant(
        name="s12_slopes_in_natural_units",
        file="device/logits.py",
        before="    return _clamp(tl.load(slopes_ptr + h) * LOG2_E, _STEEPEST)\n",
        after="    return _clamp(tl.load(slopes_ptr + h), _STEEPEST)\n",
        outputs=_EVERY,
        modelled_on="meta-pytorch/segment-anything-fast#71: a term in natural units that is added to logits in base 2: the ALiBi term counts ln 2 times, so 0.69 of it, in all kernels; right without slopes",
        needs=("alibi",),
    ),
    Mutant(
        name="s12_table_by_buckets_then_heads",
        file="relative.py",
        before="    return relative.table[:, clamped_buckets(relative).long()].contiguous()\n",
        after="    heads, buckets = relative.table.shape\n"
        "    return relative.table.reshape(buckets, heads).t()[:, clamped_buckets(relative).long()].contiguous()\n",
        outputs=_EVERY,
        modelled_on="T5's table of a relative bias, [buckets, heads], taken for what lies in memory as [heads, buckets]: bucket n of head h is read at n * heads + h, not at h * buckets + n, in all kernels; the gradient of the table belongs to the right places; one head, or one bucket, is right",
        needs=("relative_bias",),
    ),
)
