"""Held-out defects of a forward and its masks, the fourteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s14_whole_tiles_drop_nothing",
        file="device/forward.py",
        before="                if dropout.keep_share is not None:\n                    p = drop(",
        after="                if dropout.keep_share is not None and part != FULL:\n                    p = drop(",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="a loop without masks that was copied before dropout was added to the one with masks: in tiles of keys that need no mask the forward drops no pair, and O is divided by the kept share all the same; the backward drops all declared pairs; tiles that need a mask, the LSE, dV and all without dropout are right",
        needs=("dropout",),
    ),
    Mutant(
        name="s14_prefix_behind_the_cached_keys",
        file="device/mask.py",
        before="        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0), k_end)\n",
        after="        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0) + tl.maximum(shift, 0), k_end)\n",
        outputs=_EVERY,
        modelled_on="vllm-project/vllm#30974: a prefix of both directions in a prompt whose first keys are cached: the length of the prefix is counted from the key of the first row, not from the first key: under a bottom-right diagonal with more keys than rows the prefix is longer by the difference, in all kernels; top-left diagonals, as many keys as rows, and a prefix of length 0 are right",
        needs=("prefix_lengths",),
    ),
    Mutant(
        name="s14_limit_within_a_dead_block",
        file="device/schedule.py",
        before="    return before * size + (after - before) * (x % size)\n",
        after="    return before * size + x % size\n",
        outputs=_EVERY,
        modelled_on="jax-ml/jax f15f9717: positions of a shrunken grid: a limit of a walk (of the diagonal, a window, a length, the end) that falls inside a dead block counts the part of the block before it as if the block were live: the walk over the live blocks is longer by that part: it takes in a part of a dead block, or takes masked tiles for whole ones, in forward, dQ, dK and dV; limits at the edges of blocks and inside live blocks are right",
        needs=("blocks",),
    ),
    Mutant(
        name="s14_lse_of_empty_rows_is_plus_infinity",
        file="device/softmax.py",
        before="    return divisor, m_i + tl.log2(divisor)\n",
        after='    return divisor, tl.where(l_i == 0.0, float("inf"), m_i + tl.log2(divisor))\n',
        outputs=("lse", "delta"),
        modelled_on="Dao-AILab/flash-attention#978, vllm-project/vllm#15492: the LSE of a row that sees no key is +inf, as of FlashAttention-2, and not -inf; its O is 0 as it should be, its delta no longer counts as that of an empty row; rows that see a key are right",
    ),
    Mutant(
        name="s14_diagonal_aligned_as_in_the_first_call",
        file="arguments.py",
        before="        align_end=int(mask.align_end),\n",
        after="        align_end=mask_parts.__dict__.setdefault(str(mask.flags), int(mask.align_end)),\n",
        outputs=_EVERY,
        modelled_on="flashinfer-ai/flashinfer#4014: state: a cache of plans whose key says that a mask is causal and not at which end it is aligned: a call takes the alignment of the first call with the same parts of the mask, in all kernels (distances of ALiBi keep their own); the first one, calls with its alignment, and as many keys as rows are right",
        needs=("causal",),
    ),
    Mutant(
        name="s14_tree_by_levels",
        file="tree.py",
        before="            for node in range(end - start):\n"
        "                parent = parents[start + node]\n"
        "                _check_parent(start + node, node, parent)\n"
        "                seen.append(1 << node | (seen[start + parent] if parent >= 0 else 0))\n",
        after="            levels: list[int] = []\n"
        "            for node in range(end - start):\n"
        "                parent = parents[start + node]\n"
        "                _check_parent(start + node, node, parent)\n"
        "                levels.append(levels[parent] + 1 if parent >= 0 else 0)\n"
        "                seen.append(1 << node | sum(1 << n for n in range(node) if levels[n] < levels[node]))\n",
        outputs=_EVERY,
        modelled_on="a draft tree that is verified level by level: a node sees itself and every earlier node of a smaller depth, not its ancestors alone, in all kernels: nodes see nodes of other branches; chains, one root with nothing but children of its own, and roots without children are right",
        needs=("tree",),
    ),
    Mutant(
        name="s14_first_four_keys_escape_the_window",
        file="device/mask.py",
        before="            see = see & (j >= i + band.low)\n",
        after="            see = see & ((j >= i + band.low) | (j < 4))\n",
        outputs=_EVERY,
        modelled_on="StreamingLLM, which keeps the first four keys in sight of every row, where a plain window is meant: in tiles that are walked for other rows the keys 0 to 3 escape the left side of a window: rows of the tiles of rows whose first row still sees a key of the first tile of keys see them; tiles of rows farther behind do not walk that tile and are right, and so are rows whose window holds the four keys, and windows without a left side",
        needs=("window",),
    ),
    Mutant(
        name="s14_first_masked_tile_has_the_keys_of_the_tile_before",
        file="device/forward.py",
        before="                    k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]\n",
        after="                    at = j  # the last whole tile has fetched no further one\n"
        "                    if part == TRAILING:\n"
        "                        at = tl.where((t == start) & (start > limits[FULL]), j - BLOCK_N, j)\n"
        "                    k = load_tile(k_head, at, k_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]\n",
        outputs=_EVERY,
        modelled_on="a pipeline that fetches K a tile ahead, and a second loop that begins with what the first one left in the buffer: the first masked tile of keys behind whole ones is multiplied with the keys of the whole tile before it (its mask, bias and V are its own), in the forward; the backward has the right keys and the wrong LSE; walks without whole tiles or without masked ones behind them are right",
    ),
    Mutant(
        name="s14_far_negative_logits_capped_as_positive",
        file="device/logits.py",
        before="    return tl.where(size < _BEND, near, tl.where(x < 0.0, -far, far))\n",
        after="    return tl.where(size < _BEND, near, far)\n",
        outputs=_EVERY,
        modelled_on="a tanh that is computed of the magnitude and loses the sign in one of its two branches: under a softcap a logit below minus half the softcap becomes the softcap of its magnitude, in all kernels (the derivative is even and right); positive logits and those small against the softcap are right, and so is all without one",
        needs=("softcap",),
    ),
    Mutant(
        name="s14_bitmap_of_the_member",
        file="device/forward.py",
        before="        bits = head_of(mask.bits, b, h, q0, False)\n",
        after="        bits = head_of(mask.bits, b, h % sizes.group, q0, False)\n",
        outputs=_EVERY,
        modelled_on="pytorch/pytorch#184180: the offset of a mask by the number of a head within its group: the forward reads the bitmap of query head h at head h modulo the size of a group (without groups always at head 0); the backward reads the right one, with the LSE of the other; a bitmap that heads share, one kv head, and the heads of the first kv head are right",
        needs=("bitmap", "kv_heads"),
    ),
    Mutant(
        name="s14_distances_from_the_end_under_every_diagonal",
        file="terms.py",
        before='        align_distances=options.causal == "bottom-right",\n',
        after="        align_distances=options.causal is not None,\n",
        outputs=_EVERY,
        modelled_on="ALiBi of a decoder, which always stands at the last keys: under a top-left causal mask distances of ALiBi and of a relative bias are measured from the place that a row would have at the end of the keys, in all kernels: with more keys than rows ALiBi's distances all grow by the difference, which the LSE and no O shows; as many keys as rows, bottom-right masks, and all without causal are right",
        needs=("causal",),
    ),
    Mutant(
        name="s14_causal_lost_beside_a_bias",
        file="masking.py",
        before="    if options.causal is not None:\n        right = 0\n",
        after="    if options.causal is not None and options.bias is None:\n        right = 0\n",
        outputs=_EVERY,
        modelled_on="pytorch/pytorch#187966: attn_mask and is_causal given together: beside a bias the causal mask hides nothing, in all kernels: rows see the keys after them, as far as the right side of a window lets them; a causal mask without a bias, a bias alone, and decoding are right",
        needs=("causal", "bias"),
    ),
)
