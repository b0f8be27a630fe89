"""Held-out defects of decoding, pages, codes, chosen keys and rings, and of state between calls, the seventh set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s7_sink_in_the_merge_alone",
        file="decode.py",
        before="    sink = call.terms.sink\n",
        after="    sink = call.terms.sink if call.splits > 1 else None\n",
        outputs=("o", "lse"),
        modelled_on="a sink that the merge of splits takes in, so that decoding with one split, which merges nothing, leaves it out; right with several splits",
        subject="bundled-decode",
        needs=("sink",),
    ),
    Mutant(
        name="s7_page_of_the_first_of_sixteen_keys",
        file="device/pages.py",
        before="        page = tl.load(table_ptr + j // page_size, mask=keep, other=0)\n",
        after="        page = tl.load(table_ptr + j // 16 * 16 // page_size, mask=keep, other=0)\n",
        outputs=("o", "lse"),
        modelled_on="one look into the page table for sixteen keys: all of them lie in the page of the first one, where a page holds no multiple of 16 keys; pages of 16, 64 and 128 are right",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s7_page_zero_is_a_hole",
        file="device/decode.py",
        before="            page, slot = places(table_ptr, n0, j, keep, pages.size, PAGED)\n",
        after="            page, slot = places(table_ptr, n0, j, keep, pages.size, PAGED)\n"
        "            if PAGED != CONTIGUOUS:\n"
        "                keep = keep & (page > 0)\n",
        outputs=("o", "lse"),
        modelled_on="page 0 as the null page of an allocator: its keys and values are read as zeros by decoding, so that they stand in the softmax with a product of 0; right for sequences that do not own page 0",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s7_decoded_distances_by_the_room_for_rows",
        file="device/decode.py",
        before="    head = terms_of_rows(terms, b, h, q_end, k_end)\n",
        after="    head = terms_of_rows(terms, b, h, sizes.sq, k_end)\n",
        outputs=("o", "lse"),
        modelled_on="decoding of ragged chunks under a bottom-right causal mask measures the distances of ALiBi from the row i + keys - room for queries, where the declared query length is meant: the last keys of a row count as farther, and the LSE is off; right where every sequence fills the room",
        subject="bundled-decode",
        needs=("alibi", "query_lengths"),
    ),
    Mutant(
        name="s7_lengths_of_four_keys",
        file="device/latent.py",
        before="    k_end = declared(k_lengths_ptr, b, sizes.sk)\n",
        after="    k_end = tl.minimum(tl.cdiv(declared(k_lengths_ptr, b, sizes.sk), 4) * 4, sizes.sk)\n",
        outputs=("o", "lse"),
        modelled_on="ROCm/aiter#2128: a length in units of the vector load: latent cache: a key length is rounded up to a multiple of 4, so that up to three keys of padding are seen (and the bottom-right diagonal is moved); right for multiples of 4, and where the keys fill the room",
        subject="bundled-latent",
        needs=("key_lengths",),
    ),
    Mutant(
        name="s7_zero_point_zero_is_eight",
        file="device/quantised/codes.py",
        before="        number = number.to(tl.float32)\n",
        after="        number = number.to(tl.float32)\n"
        "        if FORMAT == INT4:\n"
        "            zero = tl.where(zero == 0, 8, zero)\n",
        outputs=("o", "lse"),
        modelled_on="a zero point that is asked as a truth value (zero or 8): of int4 a zero point of 0 counts as 8, the one of symmetric codes, for K and for V; every other zero point, int8 and codes without zero points are right",
        subject="bundled-quantised",
        needs=("int4",),
    ),
    Mutant(
        name="s7_lists_of_a_head_counted_by_whole_ones",
        file="device/selected_forward.py",
        before="tl.cdiv(sizes.sq, selected.rows))",
        after="tl.maximum(sizes.sq // selected.rows, 1))",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="a stride that is rounded down: chosen keys: where the queries are no multiple of those that share a list, the forward finds the lists of every kv head and sequence but the first a list too early for each before; right for multiples, where all share their lists, and in the backward, which starts from the wrong O and LSE",
        subject="bundled-selected",
    ),
    Mutant(
        name="s7_ring_lengths_from_the_first_key_held",
        file="ring/sharding.py",
        before="    return (within - first).clamp(0, keys.size - first).to(torch.int32)\n",
        after="    return within.clamp(0, keys.size - first).to(torch.int32)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="NVIDIA/TransformerEngine#3331: a length that is not lowered where a slice begins later: ring attention with a window: where the first keys that a rank holds lie before every window, as many keys of padding behind the key length are seen; right without a window, without lengths, and for ranks whose keys all count",
        subject="bundled-ring",
        needs=("key_lengths", "window"),
    ),
    Mutant(
        name="s7_page_table_of_the_first_call",
        file="decode.py",
        before="    table, mask = options.block_table, call.mask\n",
        after="    table, mask = options.block_table, call.mask\n"
        "    if table is not None:  # at a fixed address, for the graph\n"
        "        held = str((table.shape, k.shape))\n"
        "        table = _launch.__dict__.setdefault(held, table.clamp(0, max(k.shape[0] - 1, 0)))\n",
        outputs=("o", "lse"),
        modelled_on="NVIDIA/TensorRT-LLM#15556: state: a graph of decoding that is captured with its page table and replayed: a call whose table and pages have the shapes of an earlier call reads the pages of the first such call; the first one, and calls without pages, are right",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s7_splits_of_the_call_before",
        file="decode.py",
        before="    launch_merge(parts, parts_lse, o, lse, base2=True, lse_scale=_LN_2)\n",
        after='    planned_parts = _launch.__dict__.get("parts", len(parts))\n'
        '    _launch.__dict__["parts"] = len(parts)\n'
        "    launch_merge(parts[:planned_parts], parts_lse[:planned_parts], o, lse, base2=True, lse_scale=_LN_2)\n",
        outputs=("o", "lse"),
        modelled_on="flashinfer-ai/flashinfer#1028: state: a plan of one call that the next one runs by: the merge takes as many partials as the call of decoding before had, so that the last ones (and a sink) are lost where it had fewer; the first call, and calls with as many parts or fewer than the one before, are right",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="s7_seed_of_the_first_call",
        file="arguments.py",
        before="        seed=drop.seed,\n",
        after='        seed=dropout_draws.__dict__.setdefault("seed", drop.seed),\n',
        outputs=("o", "dq", "dk", "dv", "delta", "dbias", "dsink", "drelative_bias"),
        modelled_on="Dao-AILab/flash-attention#2088: state: a seed that is captured in the first call with dropout: every later call draws by it, whatever seed is given, forward and backward alike; the first call, and the LSE, are right",
        needs=("dropout",),
    ),
    Mutant(
        name="s7_partial_lse_in_16_bits",
        file="decode.py",
        before="        parts_lse = torch.empty((count, *lse.shape), dtype=torch.float32, device=o.device)\n",
        after="        parts_lse = torch.empty((count, *lse.shape), dtype=q.dtype, device=o.device)\n",
        outputs=("o", "lse"),
        modelled_on="tile-ai/tilelang#328: precision: the LSE of the partial results of decoding is kept in the dtype of q: the weights of the merge and the merged LSE are imprecise in 16 bits, the more so the larger the logits (infinite beyond 65504 in fp16); right in fp32, and with one split without a sink",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="s7_codes_become_bf16",
        file="device/quantised/attention.py",
        before="        k = (k * k_scale[:, None]).to(q.dtype)\n",
        after="        k = (k * k_scale[:, None]).to(tl.bfloat16).to(q.dtype)\n",
        outputs=("o", "lse"),
        modelled_on="precision: where codes of K are made into operands they are rounded to bf16 on the way to the dtype of q: logits are imprecise in fp16 and fp32; bf16 and the modes that fold the scale into the logit are right",
        subject="bundled-quantised",
        needs=("launch",),
    ),
)
