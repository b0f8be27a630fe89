"""Held-out defects of a forward, its masks, its precision and its state, the eighth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")
_AFTER_O = ("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s8_bias_rows_begin_again_at_64",
        file="device/logits.py",
        before="    bias = tl.load(bias_ptr + (i.to(tl.int64) * stride_row + j), mask=keep, other=0.0)\n",
        after="    bias = tl.load(bias_ptr + ((i % 64).to(tl.int64) * stride_row + j), mask=keep, other=0.0)\n",
        outputs=_EVERY,
        modelled_on="the offset of a tile of 64 rows is not added where the bias is read: row i takes the bias of row i % 64, in all kernels; the first 64 rows of a sequence are right, and so is a bias whose rows are alike",
        needs=("bias",),
    ),
    Mutant(
        name="s8_softcap_is_a_clip",
        file="device/logits.py",
        before="    z = dot * terms.scale_log2 if terms.cap_log2 is None else tanh(dot * terms.cap_ratio) * terms.cap_log2\n",
        after="    z = dot * terms.scale_log2 if terms.cap_log2 is None else _clamp(dot * terms.cap_ratio, 1.0) * terms.cap_log2\n",
        outputs=_EVERY,
        modelled_on="a softcap that cuts where it is to bend: a logit is clamped to plus or minus the cap, without the tanh, in all kernels; the derivative stays that of the tanh; logits that are small against the cap, or far above it, are nearly right",
        needs=("softcap",),
    ),
    Mutant(
        name="s8_sink_in_the_lse_alone",
        file="device/forward.py",
        before="    if terms.sink is not None:\n"
        "        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))\n"
        "        acc = acc * alpha[:, None]\n"
        "    divisor, lse2 = finish(m_i, l_i)\n",
        after="    divisor, lse2 = finish(m_i, l_i)\n"
        "    if terms.sink is not None:\n"
        "        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))\n"
        "        whole, lse2 = finish(m_i, l_i)\n",
        outputs=_AFTER_O,
        modelled_on="a sink that joins the LSE and not the divisor of O: the weights of the keys sum to 1 in O, which is too large by the share of the sink; the LSE is right, and so is dV; dQ and dK follow the O that is wrong",
        needs=("sink",),
    ),
    Mutant(
        name="s8_last_word_of_bits_not_read",
        file="device/mask.py",
        before="mask=see & (bit >= 0), other=-1)\n",
        after="mask=see & (bit >= 0) & (bit < (k_end - bits_start) // 32 * 32), other=-1)\n",
        outputs=_EVERY,
        modelled_on="pytorch/pytorch#159247: a length rounded down to whole words: the bits of the last word of a row are not read where it is not full, and its keys (of a tree: nodes) count as shown, as far as nothing else hides them, in all kernels; right where the keys (nodes) are a multiple of 32",
        needs=("bitmap",),
    ),
    Mutant(
        name="s8_prefix_counted_in_the_buffer",
        file="masking.py",
        before="        prefix_lengths=options.prefix_lengths,\n",
        after="        prefix_lengths=options.prefix_lengths\n"
        "        if options.prefix_lengths is None or options.packed is None\n"
        "        else options.prefix_lengths - options.packed.cu_k[:-1],\n",
        outputs=_EVERY,
        modelled_on="a length within a sequence compared with a place in the buffer: the prefix of a packed sequence is shorter by the keys of all sequences before it, in all kernels; the first sequence is right, and so are sequences that are not packed",
        needs=("packed", "prefix_lengths"),
    ),
    Mutant(
        name="s8_diagonal_blocks_always_live",
        file="blocks.py",
        before="        return cls(rows, keys, _tables(live), _tables(live.transpose(2, 3)))\n",
        after="        live = live | torch.eye(live.shape[2], live.shape[3], dtype=torch.bool, device=live.device)\n"
        "        return cls(rows, keys, _tables(live), _tables(live.transpose(2, 3)))\n",
        outputs=_EVERY,
        modelled_on="a sparse pattern that always keeps its local blocks: block n of the queries sees block n of the keys also where the pattern has it dead, in all kernels; patterns whose diagonal is live are right",
        needs=("blocks",),
    ),
    Mutant(
        name="s8_wide_values_begin_again_at_128",
        file="device/forward.py",
        before="                    v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]\n",
        after="                    c = tl.arange(0, BLOCK_DV)[None, :]\n"
        "                    there = (j < k_end)[:, None] & (c < sizes.dv8 * 8)\n"
        "                    v = tl.load(v_head.ptr + j.to(tl.int64)[:, None] * v_head.row + c % 128, mask=there, other=0.0)\n",
        outputs=_AFTER_O,
        modelled_on="flashinfer-ai/flashinfer#1993: a tile of V of 128 channels that is used twice: where Dv > 128 the channels of O from 128 on are those from 0 on again; LSE and dV are right, dQ and dK follow the O that is wrong, and Dv up to 128 is right",
    ),
    Mutant(
        name="s8_far_distances_have_no_bias",
        file="device/logits.py",
        before="    bias = tl.load(relative_ptr + distance, mask=keep, other=0.0)\n",
        after="    bias = tl.load(relative_ptr + distance, mask=keep & (tl.abs(j - position) <= reach), other=0.0)\n",
        outputs=_EVERY,
        modelled_on="a table of distances that ends in nothing, not in its last entry: pairs farther apart than the largest distance of a relative bias get no bias, where that of the largest distance is meant, in all kernels; near pairs are right, and so are ends whose bias is 0",
        needs=("relative_bias",),
    ),
    Mutant(
        name="s8_a_node_sees_no_grandparent",
        file="tree.py",
        before="(seen[start + parent] if parent >= 0 else 0))\n",
        after="(1 << parent if parent >= 0 else 0))\n",
        outputs=_EVERY,
        modelled_on="a tree mask of one step up: a node sees itself and its parent, but none of the ancestors before that, in all kernels; right for roots and their children, and the keys before the nodes are seen",
        needs=("tree",),
    ),
    Mutant(
        name="s8_lengths_end_the_diagonal",
        file="masking.py",
        before='    align_end = options.causal == "bottom-right"\n',
        after='    align_end = options.causal == "bottom-right" or None not in (options.causal, options.key_lengths)\n',
        outputs=_EVERY,
        modelled_on="thu-ml/SageAttention#372 the other way round: declared key lengths are taken for a cache whose last keys are the queries': a top-left causal mask (and a window with it) ends at the last declared key, as a bottom-right one, wherever there are key lengths, in all kernels; ALiBi keeps its distances; right without key lengths, bottom-right, and where a length is the number of rows",
        needs=("causal", "key_lengths"),
    ),
    Mutant(
        name="s8_maximum_before_the_mask",
        file="device/softmax.py",
        before="    if MASKED:\n"
        '        z = tl.where(see, z, float("-inf"))\n'
        "    m_new = tl.maximum(m_i, tl.max(z, 1))\n"
        '    pivot = tl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new\n',
        after="    m_new = tl.maximum(m_i, tl.max(z, 1))\n"
        "    if MASKED:\n"
        '        z = tl.where(see, z, float("-inf"))\n'
        '    pivot = tl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new\n',
        outputs=_EVERY,
        modelled_on="the running maximum is taken before the mask is applied, so over hidden keys too, with 0 for those behind the last one: a row whose visible logits lie far below loses their weight (O too small or 0), and a row that sees no key has a finite LSE; rows whose largest logit is visible, or not far below, are right",
    ),
    Mutant(
        name="s8_reciprocal_in_16_bits",
        file="device/forward.py",
        before="    store_tile(o_head, acc / divisor[:, None], i, sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        after="    share = (1.0 / divisor).to(q.dtype).to(tl.float32)\n"
        "    store_tile(o_head, acc * share[:, None], i, sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        outputs=("o",),
        modelled_on="precision: O is the accumulator times a reciprocal of the row sum that is rounded to the dtype of q: it is off by one more rounding to 16 bits, the same for all channels of a row; right in fp32, where the row sum is a power of two, and in the LSE",
    ),
    Mutant(
        name="s8_ln_2_in_four_digits",
        file="results.py",
        before="        return self.lse2 * math.log(2)\n",
        after="        return self.lse2 * 0.6931\n",
        outputs=("lse",),
        modelled_on="precision: the returned LSE is converted with ln 2 = 0.6931: it is too small in magnitude by a relative 7e-5, in all dtypes; O and all gradients, which read the one in base 2, are right",
    ),
    Mutant(
        name="s8_row_sum_of_64_lanes",
        file="device/softmax.py",
        before="    return p, m_new, l_i * alpha + tl.sum(p, 1), alpha\n",
        after="    first = tl.arange(0, z.shape[1])[None, :] < 64\n"
        "    return p, m_new, l_i * alpha + tl.sum(tl.where(first, p, 0.0), 1), alpha\n",
        outputs=_EVERY,
        modelled_on="a reduction written for one width of a tile: of a tile of 128 keys the row sum counts the first 64 alone: O is too large, the LSE too small, in rows that see keys behind; tiles of up to 64 keys are right",
        needs=("launch",),
    ),
    Mutant(
        name="s8_window_of_the_first_call",
        file="masking.py",
        before="    left, right = _check_window(options.window, extent)\n",
        after="    left, right = _check_window(options.window, extent)\n"
        "    left, right = check_mask.__dict__.setdefault(str((left is None, right is None)), (left, right))\n",
        outputs=_EVERY,
        modelled_on="Dao-AILab/flash-attention#2745: state: a compile cache whose key says which sides a window has and not how long they are: every call with a window has the sides of the first one that was bounded on the same sides, in all kernels; the first such call, and calls without a window, are right",
        needs=("window",),
    ),
    Mutant(
        name="s8_sink_of_the_call_before",
        file="arguments.py",
        before='        sink=terms.sink if kind == "forward" else None,\n',
        after="        sink=None\n"
        '        if kind != "forward"\n'
        "        else logit_terms.__dict__.get(str(call.heads))\n"
        "        if terms.sink is None\n"
        "        else (logit_terms.__dict__.update({str(call.heads): terms.sink.detach().clone()}) or terms.sink),\n",
        outputs=_EVERY,
        modelled_on="flashinfer-ai/flashinfer#1028: state: a buffer that is kept when the next plan has none: a forward without a sink takes the sinks of the last one that had any, of as many query heads: O and LSE are those with a sink, and gradients follow; calls with a sink, and those before the first, are right",
    ),
)
