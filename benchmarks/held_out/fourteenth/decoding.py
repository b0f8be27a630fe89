"""Held-out defects of decoding, pages, other caches, chosen keys and rings, the fourteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s14_draft_rows_scheduled_as_the_last",
        file="device/decode.py",
        before="    limits = tile_schedule(first, last + 1, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)\n",
        after="    limits = tile_schedule(last, last + 1, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)\n",
        outputs=("o", "lse"),
        modelled_on="a decoding of one query that was extended to a few drafted ones: which tiles of keys are walked, and which need a mask, is decided by the last query of a tile of rows: under a causal mask earlier queries see keys after them in tiles that are whole for the last one, under a window they lose the tiles before its begin; one query, and masks that all queries of a tile share, are right",
        subject="bundled-decode",
    ),
    Mutant(
        name="s14_rotary_queries_of_the_first_row",
        file="device/latent.py",
        before="        q_rope = load_rows(q_view.ptr + sizes.dv8 * 8, q_offset, i < sizes.sq,",
        after="        q_offset -= i.to(tl.int64) * q_view.row  # a query of a sequence\n"
        "        q_rope = load_rows(q_view.ptr + sizes.dv8 * 8, q_offset, i < sizes.sq,",
        outputs=("o", "lse"),
        modelled_on="flashinfer-ai/flashinfer#4382: an MLA decoding of one query that was extended to several: latent cache: the rotary channels of every query are those of the first query of its head and sequence; the latent channels are its own; one query, and caches without a rotary part, are right",
        subject="bundled-latent",
    ),
    Mutant(
        name="s14_v_scale_in_the_first_split_alone",
        file="device/quantised/attention.py",
        before="    o = normalised(acc, l_i, divisor, v_codes, b, hk, k_end, MODE, SCALE_LAST)\n"
        "    o_offset = split.to(tl.int64) * o_view.part",
        after="    o = normalised(acc, l_i, divisor, v_codes, b, hk, k_end, MODE, False)\n"
        "    if SCALE_LAST:\n"
        "        o = o * tl.where(split == 0, load_only_scale(v_codes, b, hk, k_end > 0), 1.0)\n"
        "    o_offset = split.to(tl.int64) * o_view.part",
        outputs=("o",),
        modelled_on="sgl-project/sglang#24198: a scale that one of several paths applies: quantised decoding: where one scale of V serves a head (or all) and multiplies the result, only the first split multiplies its result by it, the others merge what their codes give; the LSE is right, and so are one split, scales by key or block, codes that are scaled before the product, and rows all of whose keys lie in the first split",
        subject="bundled-quantised-decode",
    ),
    Mutant(
        name="s14_member_of_a_list_by_its_rows",
        file="device/selection.py",
        before="    return b, hk, n, i, hk * sizes.group + r % sizes.group, inside\n",
        after="    return b, hk, n, i, hk * sizes.group + r // selected.rows, inside\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="flagos-ai/FlagGems#3759: a decomposition of packed rows by the other of two sizes: chosen keys: where several queries share a list and several query heads a kv head, row r of a list is taken for query r // group of member r // queries: some pairs of query and head are computed several times and others never, in forward and dQ; lists of one query, and groups of one head, are right",
        subject="bundled-selected",
        needs=("groups",),
    ),
    Mutant(
        name="s14_striped_lengths_rounded_down",
        file="ring/sharding.py",
        before="    within = (lengths - keys.start + keys.step - 1).div(",
        after="    within = (lengths - keys.start).div(",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="NVIDIA/TransformerEngine#3331: keys dropped at the end of a sequence that is spread over ranks: a ring with striped shards: how many keys of a rank lie within a key length is rounded down: ranks whose last key within the length is not followed by a full round lose that key; contiguous and zigzag shards, and lengths that end with a key of the rank before are right for a rank",
        subject="bundled-ring",
        needs=("key_lengths",),
    ),
    Mutant(
        name="s14_prefill_reads_a_kv_head_for_each_query_head",
        file="device/quantised/attention.py",
        before="    hk = h // sizes.group\n",
        after="    hk = tl.minimum(h, sizes.kv_heads - 1)\n",
        outputs=("o", "lse"),
        modelled_on="PSAL-POSTECH/ONNXim#34: a kernel for as many kv heads as query heads whose index is clamped: the forward over codes reads for query head h kv head h, for those beyond the last one the last kv head; groups of one head, one kv head, and decoding are right",
        subject="bundled-quantised",
        needs=("groups", "kv_heads"),
    ),
    Mutant(
        name="s14_int4_channels_in_whole_sixteens",
        file="device/quantised/codes.py",
        before="        there = there & (c < channels8 * 8 // PACKED)\n",
        after="        there = there & (c < channels8 // PACKED * 8)\n",
        outputs=("o", "lse"),
        modelled_on="flashinfer-ai/flashinfer#4299: head dims that are no multiple of 16: of int4 codes, two to a byte, whole groups of eight bytes are read: where a head dim is an odd multiple of 8, the last 8 channels of K or V count as the code 8 (0 without zero points); head dims that are multiples of 16, and all other formats, are right",
        subject="bundled-quantised",
        needs=("int4",),
    ),
    Mutant(
        name="s14_ring_right_side_stays_behind",
        file="ring/sharding.py",
        before="        first_key = left\n        right = None if right is None else right - first_key\n",
        after="        first_key = left\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="a band that is moved by one of its two sides: a ring: where the first keys of a piece lie before the window of every row of the piece of rows, and are left out, the right side keeps its distance from the first row: rows see as many keys after their own as were left out; pieces whose first key a row sees, and windows without a left side, are right",
        subject="bundled-ring",
        needs=("window",),
    ),
    Mutant(
        name="s14_queries_padded_on_the_left",
        file="device/decode.py",
        before="h.to(tl.int64) * q_view.head + i.to(tl.int64) * q_view.row\n"
        "    q = load_rows(q_view.ptr, q_offset, i < sizes.sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        after="h.to(tl.int64) * q_view.head\n"
        "    q_offset += (i + sizes.sq - q_end).to(tl.int64) * q_view.row\n"
        "    q = load_rows(q_view.ptr, q_offset, i < q_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)\n",
        outputs=("o", "lse"),
        modelled_on="drafts of unequal lengths in a batch, which some pad in front and others behind: decoding: of a sequence with fewer queries than there is room for, row i is computed from the query that lies as many rows later as rows are padding; full query lengths, and calls without them, are right",
        subject="bundled-decode",
        needs=("query_lengths",),
    ),
    Mutant(
        name="s14_latent_diagonal_ends_with_the_room",
        file="device/latent.py",
        before="    band = band_of(b, sizes.sq, k_end, mask, MASK)\n",
        after="    band = band_of(b, sizes.sq, sizes.sk, mask, MASK)\n",
        outputs=("o", "lse"),
        modelled_on="ROCm/flash-attention#185: a diagonal that ends with the room of a cache: latent cache: under a bottom-right mask the rows of a sequence whose keys do not fill the room stand as many keys later as it has room left: rows see keys after them, and lose the first ones of a window; one query without a window, full caches and top-left masks are right",
        subject="bundled-latent",
        needs=("causal", "key_lengths"),
    ),
)
