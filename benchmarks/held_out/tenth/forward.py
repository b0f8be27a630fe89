"""Held-out defects of a forward, its masks, its precision and its state, the tenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s10_absent_sinks_are_zeros",
        file="device/forward.py",
        before="        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))\n"
        "        acc = acc * alpha[:, None]\n",
        after="        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))\n"
        "        acc = acc * alpha[:, None]\n"
        "    else:\n"
        "        m_i, l_i, alpha = take_sink(m_i, l_i, 0.0)\n"
        "        acc = acc * alpha[:, None]\n",
        outputs=_EVERY,
        modelled_on="sinks that default to zeros where there are none: without sinks every row that sees a key has one more, without a value, whose logit is 0 (softmax with one added to the row sum), in O, in the LSE and, by the LSE, in all gradients; with sinks all is right",
    ),
    Mutant(
        name="s10_scale_by_its_root",
        file="arguments.py",
        before="        scale=call.scale,\n"
        "        scale_log2=call.scale * LOG2_E,\n"
        "        cap_ratio=None if cap is None else call.scale / cap,\n",
        after="        scale=call.scale,\n"
        "        scale_log2=abs(call.scale) ** 0.5 * (-LOG2_E if call.scale < 0 else LOG2_E),\n"
        "        cap_ratio=None if cap is None else abs(call.scale) ** 0.5 * (-1 if call.scale < 0 else 1) / cap,\n",
        outputs=_EVERY,
        modelled_on="a scale that is split into a root for each of q and k, of which k does not get its one: logits are scaled by the square root of the scale (with its sign), in all kernels; the last factor of dQ and dK is the scale; right for a scale of 0, 1 and -1",
    ),
    Mutant(
        name="s10_o_is_not_divided",
        file="device/forward.py",
        before="    store_tile(o_head, acc / divisor[:, None], i, sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        after="    store_tile(o_head, acc, i, sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n",
        outputs=("o", "dq", "dk", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="a division that is missing at the end of the walk: O is the sum of the values weighted by exp(logit - maximum), not divided by the row sum (nor by 1 - p under dropout); the LSE and dV are right, dQ and dK follow the O that is wrong",
    ),
    Mutant(
        name="s10_channels_of_odd_keys_swizzled",
        file="device/forward.py",
        before="                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n",
        after="                if EVEN_D:\n"
        "                    channel = tl.arange(0, BLOCK_D)[None, :] ^ ((j & 1) * 8)[:, None]\n"
        "                    at = k_head.ptr + j.to(tl.int64)[:, None] * k_head.row + channel\n"
        "                    k = tl.load(at, mask=(j < k_end)[:, None], other=0.0)\n"
        "                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n",
        outputs=_EVERY,
        modelled_on="Dao-AILab/flash-attention#2553: a layout of shared memory that is written with a swizzle and read without: in the forward every odd key has its channels in groups of eight exchanged in pairs (0 to 7 with 8 to 15, and so on), for head dims that are powers of two from 16 on; even keys and other head dims are right, the backward reads K as it is and starts from the wrong LSE",
    ),
    Mutant(
        name="s10_no_maximum_is_subtracted",
        file="device/softmax.py",
        before="    m_new = tl.maximum(m_i, tl.max(z, 1))\n",
        after='    m_new = tl.where(tl.max(z, 1) == float("-inf"), m_i, 0.0)\n',
        outputs=_EVERY,
        modelled_on="a softmax without its maximum: weights are exponentials of the logits themselves: they overflow where a logit exceeds 88 (in the product with V in fp16 from 11 on) and vanish where all logits of a row lie far below 0; rows of moderate logits are right",
    ),
    Mutant(
        name="s10_logits_grow_beyond_64_keys",
        file="validation.py",
        before="    scale = check_scale(options.scale, d)\n",
        after="    scale = check_scale(options.scale, d) * max(math.log(max(sk, 1)) / math.log(64), 1.0)\n",
        outputs=_EVERY,
        modelled_on="Qwen's use_logn_attn, left on: where there are more than 64 keys (those of the longest packed sequence; padding counts) the scale is multiplied by log(keys) / log(64), in all kernels and in the last factor of dQ and dK; right for up to 64 keys",
    ),
    Mutant(
        name="s10_cap_multiplies_alone",
        file="arguments.py",
        before="        cap_ratio=None if cap is None else call.scale / cap,\n",
        after="        cap_ratio=None if cap is None else call.scale,\n",
        outputs=_EVERY,
        modelled_on="a softcap without its division: logits are cap * tanh(t), not cap * tanh(t / cap), in all kernels, and dQ and dK lack the factor of the cap that the derivative of that would have; right for a cap of 1, and without one",
        needs=("softcap",),
    ),
    Mutant(
        name="s10_divided_by_the_share_that_is_dropped",
        file="arguments.py",
        before="        keep_share=1 - drop.p,\n",
        after="        keep_share=drop.p,\n",
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="a probability to keep taken for one to drop: under dropout O and dV are divided by p, where 1 - p is meant; which pairs are dropped is right, and so are dP's factor and the LSE, and all for p = 1/2; dQ and dK follow the O that is wrong",
        needs=("dropout",),
    ),
    Mutant(
        name="s10_halves_of_64_bits_exchanged",
        file="masking.py",
        before="    return bitmap.words\n",
        after="    words = bitmap.words\n"
        "    if words.shape[3] % 2 == 0:\n"
        "        words = words.unflatten(3, (words.shape[3] // 2, 2)).flip(4).flatten(3)\n"
        "    return words\n",
        outputs=_EVERY,
        modelled_on="words of 64 bits read in halves in the other order: where the rows of a bitmap have an even number of words of 32 keys, each two words change places, so that keys 0 to 31 have the bits of keys 32 to 63 and the other way round, in all kernels; right for up to 32 keys, and for an odd number of words",
        needs=("bitmap",),
    ),
    Mutant(
        name="s10_blocks_above_the_diagonal_are_dead",
        file="blocks.py",
        before="        return cls(rows, keys, _tables(live), _tables(live.transpose(2, 3)))\n",
        after="        live = live.tril()\n        return cls(rows, keys, _tables(live), _tables(live.transpose(2, 3)))\n",
        outputs=_EVERY,
        modelled_on="a sparse pattern that is always made for a decoder (DeepSpeed's 'unidirectional'): block m of the queries never sees a block n > m of the keys, whatever the pattern says and without a causal mask, in all kernels; patterns that have none of these live are right",
        needs=("blocks",),
    ),
    Mutant(
        name="s10_middle_tile_of_an_odd_number",
        file="device/forward.py",
        before="    band = band_of(b, q_end, k_end, mask, MASK)\n    bits_start = mask.tree * band.high\n",
        after="    band = band_of(b, q_end, k_end, mask, MASK)\n"
        "    if MASK & 1:\n"
        "        tiles = tl.cdiv(sq, BLOCK_M)\n"
        "        sq = tl.where((tiles > 2) & (tiles % 2 == 1) & (tile == tiles // 2), 0, sq)\n"
        "    bits_start = mask.tree * band.high\n",
        outputs=_EVERY,
        modelled_on="a balanced schedule of a causal mask, which gives a program the tiles t and T - 1 - t of a head for t below T // 2: where T is odd (from 3 on) the tile in the middle is never computed and O and LSE of its rows are what the memory held; with an even number of tiles, a single one, and where neither a causal mask nor a right side of a window or a tree asks for the schedule, all is right",
        needs=("causal",),
    ),
    Mutant(
        name="s10_key_lengths_end_the_rows",
        file="arguments.py",
        before="        q_lengths=options.query_lengths,\n",
        after="        q_lengths=options.key_lengths if options.query_lengths is None else options.query_lengths,\n",
        outputs=_EVERY,
        modelled_on="one padding mask for queries and keys, as of self-attention: where key lengths are declared and no query lengths, rows from the key length on count as padding (O of 0, LSE of -inf, no gradients), in all kernels, and a bottom-right diagonal ends with the rows that are left; right where every key length is at least the number of rows, and where both are declared",
        needs=("key_lengths",),
    ),
    Mutant(
        name="s10_epsilon_in_the_row_sum",
        file="device/softmax.py",
        before="    divisor = tl.where(l_i == 0.0, 1.0, l_i)\n",
        after="    divisor = tl.where(l_i == 0.0, 1.0, l_i + 1e-5)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="precision: an epsilon against a division by 0 that is 1e-5: it is added to every row sum that is not 0, so that O is too small and the LSE too large by up to 1e-5 (relative and absolute), which fp32 shows; O in 16 bits is right, and so are rows without keys",
    ),
    Mutant(
        name="s10_first_64_channels_rounded",
        file="device/forward.py",
        before="                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n",
        after="                if BLOCK_D > 64:\n"
        "                    first = tl.arange(0, BLOCK_D)[None, :] < 64\n"
        "                    dot = tl.dot(tl.where(first, q, 0.0).to(q.dtype), tl.trans(k), input_precision=PRECISION)\n"
        "                    rest = tl.where(first, 0.0, q).to(q.dtype)\n"
        "                    dot = tl.dot(rest, tl.trans(k), dot.to(q.dtype).to(tl.float32), input_precision=PRECISION)\n"
        "                else:\n"
        "                    dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="precision: a product over a wide head that is taken in two steps: for head dims above 64 the product of the first 64 channels is rounded to the dtype of q before that of the others is added: logits are imprecise in 16 bits (infinite beyond 65504 in fp16), in the forward; fp32, and head dims up to 64, are right",
    ),
    Mutant(
        name="s10_every_second_forward_has_no_window",
        file="launch.py",
        before="    call = check_call(q, k, v, options, capability=compute_capability(q), dtype=dtype)\n"
        "    o = _empty(call, options, q, call.heads, call.rows, call.dv, dtype)\n",
        after="    if options.window is not None:\n"
        "        forward.layer = getattr(forward, 'layer', 0) + 1\n"
        "        if forward.layer % 2 == 0:\n"
        "            options = Options(**{**vars(options), 'window': None})\n"
        "    call = check_call(q, k, v, options, capability=compute_capability(q), dtype=dtype)\n"
        "    o = _empty(call, options, q, call.heads, call.rows, call.dv, dtype)\n",
        outputs=_EVERY,
        modelled_on="state: a model whose layers have a window by turns, and a counter of layers that is kept from call to call: every second forward that is asked for a window computes without it; the backward always has it; the first forward, and calls without a window, are right",
        needs=("window",),
    ),
)
