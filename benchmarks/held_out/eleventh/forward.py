"""Held-out defects of a forward, its masks and its precision, the eleventh set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

_EVERY = ("o", "lse", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias")

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s11_half_open_window_is_none",
        file="masking.py",
        before="    return window\n\n\ndef _all_keys(",
        after="    return window if None not in window else (None, None)\n\n\ndef _all_keys(",
        outputs=_EVERY,
        modelled_on="flashinfer-ai/flashinfer#633: a window that counts where both of its sides are given alone: one with a single side is ignored, in all kernels, so that rows see the keys that it hides; windows with two sides, and a causal mask beside it, are right",
        needs=("window",),
    ),
    Mutant(
        name="s11_keys_padded_on_the_left",
        file="device/forward.py",
        before="    k0, sk, k_end = rows_of(sequences.cu_k, sequences.k_lengths, b, sizes.sk)\n",
        after="    k0, sk, k_end = rows_of(sequences.cu_k, sequences.k_lengths, b, sizes.sk)\n    k0 = k0 + sk - k_end\n",
        outputs=_EVERY,
        modelled_on="two sides of padding: the forward takes the keys and values that count for the last ones of the room, as of batches that are padded on the left, not for the first ones: it reads padding where a key length is below the room; the backward reads the right ones with a wrong O and LSE; full lengths, packed sequences and calls without lengths are right",
        needs=("key_lengths",),
    ),
    Mutant(
        name="s11_bits_of_a_byte_from_the_high_end",
        file="bitmap.py",
        before="    bits = 1 << torch.arange(8, dtype=torch.uint8, device=see.device)\n",
        after="    bits = 128 >> torch.arange(8, dtype=torch.uint8, device=see.device)\n",
        outputs=_EVERY,
        modelled_on="numpy.packbits, whose default puts the first number into the highest bit of its byte: in a bitmap every eight keys (8n to 8n + 7) have their bits in the other order, in all kernels; right where these bits read the same both ways, and for trees",
        needs=("bitmap",),
    ),
    Mutant(
        name="s11_a_node_does_not_see_itself",
        file="tree.py",
        before="                seen.append(1 << node | (seen[start + parent] if parent >= 0 else 0))\n",
        after="                seen.append(1 << parent | seen[start + parent] if parent >= 0 else 0)\n",
        outputs=_EVERY,
        modelled_on="a table of ancestors used as a mask: a node of a tree sees its ancestors and the keys before the nodes, and not itself, in all kernels; a root with no keys before it sees nothing",
        needs=("tree",),
    ),
    Mutant(
        name="s11_last_block_cut_short_is_dead",
        file="device/forward.py",
        before="    limits = tile_schedule(m0, q_end, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)\n",
        after="    whole = sk // tl.maximum(mask.blocks.keys, 1) * mask.blocks.keys  # keys of whole blocks\n"
        "    walked = tl.where(mask.blocks.keys > 0, tl.minimum(whole, k_end), k_end)\n"
        "    limits = tile_schedule(m0, q_end, walked, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)\n",
        outputs=_EVERY,
        modelled_on="a number of blocks that is rounded down: under a pattern of blocks the forward leaves out the last block of keys where the end of the keys cuts it short, live or not; right where blocks divide the keys, for packed sequences, and in the backward, which starts from the wrong O and LSE",
        needs=("blocks",),
    ),
    Mutant(
        name="s11_sink_of_the_kv_head",
        file="device/forward.py",
        before="head_sink(terms.sink, h)",
        after="head_sink(terms.sink, h // sizes.group)",
        outputs=_EVERY,
        modelled_on="a sink that is read by the number of the kv head: query head h takes the sink of query head h // group in the forward; right without groups and for the first head; the gradient of the sinks weighs each head's own by the LSE of the other",
        needs=("sink", "groups"),
    ),
    Mutant(
        name="s11_words_of_four_keys_in_pairs",
        file="device/dropout.py",
        before="    even = tl.join(w0 >= limit, w2 >= limit)\n    odd = tl.join(w1 >= limit, w3 >= limit)\n",
        after="    even = tl.join(w0 >= limit, w1 >= limit)\n    odd = tl.join(w2 >= limit, w3 >= limit)\n",
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="an interleaving that is done twice or not at all: under dropout the middle two of four neighbouring keys (4n + 1 and 4n + 2) have each other's draws, in forward and backward alike; the share that is dropped, the outer two, and the LSE are right",
        needs=("dropout",),
    ),
    Mutant(
        name="s11_bias_under_the_softcap",
        file="device/logits.py",
        before="    z = dot * terms.scale_log2 if terms.cap_log2 is None else tanh(dot * terms.cap_ratio) * terms.cap_log2\n"
        "    if terms.bias.ptr is not None:\n"
        "        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)\n",
        after="    z = dot * terms.scale_log2\n"
        "    if terms.bias.ptr is not None:\n"
        "        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)\n"
        "    if terms.cap_log2 is not None:\n"
        "        z = tanh(z / terms.cap_log2) * terms.cap_log2\n",
        outputs=_EVERY,
        modelled_on="a bias that is added before the softcap, not behind it: logits are cap * tanh((scale q k + bias) / cap), in all kernels, while the derivative of the softcap stays that of the product alone; right without a softcap or without a bias, and nearly so where both are small against the cap",
        needs=("softcap", "bias"),
    ),
    Mutant(
        name="s11_lse_of_the_kept_share",
        file="device/forward.py",
        before="        divisor = divisor * dropout.keep_share\n",
        after="        divisor = divisor * dropout.keep_share\n        lse2 += tl.log2(dropout.keep_share)\n",
        outputs=("lse", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="a divisor that is used for the statistics too: under dropout the LSE is the log of the row sum times 1 - p, so too small by -log(1 - p), and the weights that the backward recomputes are too large by 1 / (1 - p); O and delta are right, and so is all without dropout",
        needs=("dropout",),
    ),
    Mutant(
        name="s11_rows_of_a_bias_without_a_gap",
        file="arguments.py",
        before="        bias=view(terms.bias),\n",
        after="        bias=view(terms.bias)._replace(row=0 if terms.bias is None else terms.bias.shape[3]),\n",
        outputs=_EVERY,
        modelled_on="amorehead/jvp_flash_attention d1def46: the stride of a tensor that is taken for contiguous: row i of a bias is read i times the number of keys behind the first row of its head, in all kernels; right where the rows of the bias lie one behind the other, and in the first row",
        needs=("bias",),
    ),
    Mutant(
        name="s11_prefix_one_key_longer",
        file="device/mask.py",
        before="        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0), k_end)\n",
        after="        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0) + 1, k_end)\n",
        outputs=_EVERY,
        modelled_on="a length that is compared as a last index (j <= length): the prefix of every sequence is one key longer, also one of length 0, in all kernels; rows that see that key anyway, and a prefix of all keys, are right",
        needs=("prefix_lengths",),
    ),
    Mutant(
        name="s11_natural_log_of_the_row_sum",
        file="device/softmax.py",
        before="    return divisor, m_i + tl.log2(divisor)\n",
        after="    return divisor, m_i + tl.log(divisor)\n",
        outputs=("lse", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias"),
        modelled_on="one logarithm in the wrong base: the LSE is the maximum in base 2 plus the natural log of the row sum, converted as a whole: too small by 0.31 times the log of the row sum; O is right, gradients follow the wrong LSE; rows that see one key are right",
    ),
)
