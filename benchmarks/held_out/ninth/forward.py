"""Held-out defects of a forward, its masks, its precision and its state, the ninth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s9_alibi_before_the_scale",
        file="arguments.py",
        before="        slopes=terms.slopes,\n",
        after="        slopes=None if terms.slopes is None else terms.slopes * call.scale,\n",
        outputs=_EVERY,
        modelled_on="a term that is added to q k before the softmax scale, not behind it: ALiBi is multiplied by the scale, in all kernels; right for a scale of 1, and without slopes",
        needs=("alibi",),
    ),
    Mutant(
        name="s9_causal_or_a_bitmap",
        file="masking.py",
        before="    if options.causal is not None:\n        right = 0\n",
        after="    if options.causal is not None and options.bitmap is None:\n        right = 0\n",
        outputs=_EVERY,
        modelled_on="pytorch/pytorch#187966: a mask and a causal flag that are both accepted, of which the mask alone is applied: beside a bitmap there is no causal mask, so that rows see the keys after them whose bits are set, in all kernels; the left side of a window still counts from the diagonal that was asked for; each of the two alone is right",
        needs=("causal", "bitmap"),
    ),
    Mutant(
        name="s9_row_of_no_live_block_is_dense",
        file="blocks.py",
        before="        return cls(rows, keys, _tables(live), _tables(live.transpose(2, 3)))\n",
        after="        live = live | ~live.any(-1, keepdim=True)\n"
        "        return cls(rows, keys, _tables(live), _tables(live.transpose(2, 3)))\n",
        outputs=_EVERY,
        modelled_on="a list of length 0 that means no list: the rows of a block that has no live block of keys see all keys, where they see none (O of 0, LSE of -inf), in all kernels; right where every block of rows has a live one",
        needs=("blocks",),
    ),
    Mutant(
        name="s9_both_sides_share_the_width",
        file="masking.py",
        before="    left, right = _check_window(options.window, extent)\n",
        after="    left, right = _check_window(options.window, extent)\n"
        "    if options.causal is None and left is not None and right is not None:\n"
        "        left, right = left // 2, right // 2\n",
        outputs=_EVERY,
        modelled_on="a window whose numbers are taken for its whole width, as of Longformer: without a causal mask a window with two sides has half of each (rounded down), in all kernels; windows with one side, windows under a causal mask, and sides of 0 are right",
        needs=("window",),
    ),
    Mutant(
        name="s9_prefix_counted_from_the_first_row",
        file="device/mask.py",
        before="        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0), k_end)\n",
        after="        prefix = tl.maximum(tl.load(mask.prefix_lengths + b), 0) + tl.maximum(shift, 0)\n"
        "        prefix = tl.minimum(prefix, k_end)\n",
        outputs=_EVERY,
        modelled_on="a prefix that is counted among the rows of this call, behind the keys of earlier ones: under a bottom-right causal mask with more keys than queries the prefix is longer by the keys before the first row, in all kernels: rows see as many keys after their own; right top-left, where a sequence has no more keys than queries, for a prefix of 0, and where the prefix reaches over all keys",
        needs=("causal", "prefix_lengths"),
    ),
    Mutant(
        name="s9_sink_under_the_softcap",
        file="terms.py",
        before="        sink=None if options.sink is None else options.sink.contiguous(),\n",
        after="        sink=None\n"
        "        if options.sink is None\n"
        "        else options.sink.contiguous()\n"
        "        if options.softcap is None\n"
        "        else options.softcap * torch.tanh(options.sink / options.softcap),\n",
        outputs=_EVERY,
        modelled_on="a sink that is appended to the logits before they are capped: with a softcap the sink is softcap * tanh(sink / softcap), in all kernels and in its gradient, which lacks the derivative; right without a softcap, and nearly so for sinks small against the cap",
        needs=("sink", "softcap"),
    ),
    Mutant(
        name="s9_cap_of_base_2_logits",
        file="arguments.py",
        before="        cap_ratio=None if cap is None else call.scale / cap,\n"
        "        cap_log2=None if cap is None else cap * LOG2_E,\n",
        after="        cap_ratio=None if cap is None else call.scale * LOG2_E / cap,\n"
        "        cap_log2=None if cap is None else cap,\n",
        outputs=_EVERY,
        modelled_on="a softcap in natural units that is applied to logits in base 2: the cap is too small by a factor of ln 2, in all kernels, whose derivative fits; right without a softcap, and nearly so for logits small against the cap",
        needs=("softcap",),
    ),
    Mutant(
        name="s9_one_draw_for_four_keys",
        file="device/dropout.py",
        before="    even = tl.join(w0 >= limit, w2 >= limit)\n    odd = tl.join(w1 >= limit, w3 >= limit)\n",
        after="    even = tl.join(w0 >= limit, w0 >= limit)\n    odd = tl.join(w0 >= limit, w0 >= limit)\n",
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "drelative_bias", "dsink"),
        modelled_on="one random number where four are meant: four neighbouring keys (4n to 4n + 3) are kept or dropped together, by the draw of the first, in forward and backward alike: the share that is dropped is right, and so are keys 0, 4, 8, ...; the LSE is right",
        needs=("dropout",),
    ),
    Mutant(
        name="s9_parents_found_in_the_first_tree",
        file="tree.py",
        before="(seen[start + parent] if parent >= 0 else 0))\n",
        after="(seen[parent] if parent >= 0 else 0))\n",
        outputs=_EVERY,
        modelled_on="a number within a sequence used as one of the whole batch: where there are several trees (packed, or one for each entry) a node sees its parent, and in place of the parent's ancestors those that the node of the parent's number has in the first tree (which, where that is shorter, is counted on into the next ones); the first tree is right, and so are roots and trees that begin like the first one",
        needs=("tree", "sequences"),
    ),
    Mutant(
        name="s9_tiles_of_the_buffer",
        file="programs.py",
        before="        return heads * (min(rows, call.sequences * length) // block + call.sequences)\n",
        after="        return heads * -(-min(rows, call.sequences * length) // block)\n",
        outputs=_EVERY,
        modelled_on="a grid of packed sequences with as many tiles as the rows of the buffer fill, though each sequence begins a tile of its own: the tiles of the last heads and sequences are never computed (what the memory held stays), in all kernels and outputs; a single sequence whose rows are no multiple of a tile is right",
        needs=("packed",),
    ),
    Mutant(
        name="s9_scale_in_the_dtype_of_q",
        file="validation.py",
        before="    scale = check_scale(options.scale, d)\n",
        after="    scale = float(torch.tensor(check_scale(options.scale, d)).to(q.dtype))\n",
        outputs=_EVERY,
        modelled_on="precision: a scale that is kept as a tensor of the dtype of q: in 16 bits all logits are off by the rounding of the scale (and all 0 for a scale below the numbers of fp16), forward and backward alike; right in fp32 and for scales that 16 bits hold, such as powers of two, so for the default of 16, 64 and 256 channels",
    ),
    Mutant(
        name="s9_exponent_in_fp16",
        file="device/softmax.py",
        before="    p = tl.exp2(z - pivot[:, None])\n    alpha = tl.exp2(m_i - pivot)\n",
        after="    p = tl.exp2((z - pivot[:, None]).to(tl.float16).to(tl.float32))\n    alpha = tl.exp2(m_i - pivot)\n",
        outputs=_EVERY,
        modelled_on="precision: the argument of the exponential, logit minus maximum in base 2, is rounded to fp16, as for an exponential of two halves at once: weights are off by up to that distance times ln 2 * 2^-11 (half a percent at 16 below), in O and LSE, in every dtype and all kernels with an online softmax; the factor that rescales is exact, and so are distances that fp16 holds; gradients start from the wrong LSE",
    ),
    Mutant(
        name="s9_o_by_way_of_fp16",
        file="device/forward.py",
        before="    store_tile(o_head, acc / divisor[:, None], i, sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        after="    o = acc / divisor[:, None]\n"
        "    if q.dtype == tl.bfloat16:\n"
        "        o = o.to(tl.float16).to(tl.float32)\n"
        "    store_tile(o_head, o, i, sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="precision: an epilogue that was written for fp16: in bf16 O is rounded to fp16 before it is rounded to bf16: infinite beyond 65504, coarse below 2^-14 and 0 below 2^-25; values in between are rounded twice and nearly right, and fp16, fp32 and the LSE are right",
    ),
    Mutant(
        name="s9_relative_bias_of_the_first_layer",
        file="relative.py",
        before="    return relative.table[:, clamped_buckets(relative).long()].contiguous()\n",
        after="    found = relative.table.detach()[:, clamped_buckets(relative).long()].contiguous()\n"
        "    return by_distance.__dict__.setdefault(str((*found.shape, found.device)), found)\n",
        outputs=_EVERY,
        modelled_on="state: a position bias that the first layer computes and the others share: a call with a relative bias of as many heads and distances as an earlier one has the bias of the first such call, forward and backward; the first one, and calls of other shapes, are right",
        needs=("relative_bias",),
    ),
    Mutant(
        name="s9_offset_counts_the_launches",
        file="arguments.py",
        before="        offset=drop.offset,\n",
        after='        offset=drop.offset + next(dropout_draws.__dict__.setdefault("launches", iter(range(2**31)))),\n',
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "drelative_bias", "dsink"),
        modelled_on="pytorch/pytorch#190717: state: a generator whose offset advances with every launch, that of a backward too: forward, dQ, and dK and dV each draw at an offset one higher than the launch before, so that they drop other pairs than one another, and than are declared, in all launches of a process but the first; the LSE is right, and so is all without dropout",
        needs=("dropout",),
    ),
)
