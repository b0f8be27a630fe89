"""Held-out defects of decoding, pages, splits and merges, the fourth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="f4_packed_rows_unpacked_the_other_way",
        file="device/decode.py",
        before="    o_offset += h.to(tl.int64) * o_view.head + i.to(tl.int64) * o_view.row\n",
        after="    o_head = hk.to(tl.int64) * sizes.group + r // sizes.sq\n"
        "    o_offset += o_head * o_view.head + (r % sizes.sq).to(tl.int64) * o_view.row\n",
        outputs=("o",),
        modelled_on="decoding stores O of packed row r, which is query r // group of member r % group, as query r % Sq of member r // Sq: rows change places within a group; right with one query or a group of one, and the LSE is right",
        subject="bundled-decode",
        needs=("groups",),
    ),
    Mutant(
        name="f4_terms_of_the_member",
        file="device/decode.py",
        before="    head = terms_of_rows(terms, b, h, q_end, k_end)\n",
        after="    head = terms_of_rows(terms, b, h - hk.to(tl.int64) * sizes.group, q_end, k_end)\n",
        outputs=("o", "lse"),
        modelled_on="decoding takes the ALiBi slope and the bias of the head within its group, so those of the first kv head's query heads for all; right with one kv head, and for a bias that all heads share",
        subject="bundled-decode",
        needs=("kv_heads",),
    ),
    Mutant(
        name="f4_table_rows_as_long_as_the_longest_sequence",
        file="decode.py",
        before="0 if table is None else table.stride(0)",
        after="0\n"
        "            if table is None\n"
        "            else table.stride(0)\n"
        "            if options.key_lengths is None\n"
        "            else -(-int(options.key_lengths.max()) // call.page_size)",
        outputs=("o", "lse"),
        modelled_on="the rows of the page table are taken to be as long as the longest declared sequence has pages: wrong for every sequence but the first where the table has room for more; right without key lengths, and where the longest fills the table",
        subject="bundled-decode",
        needs=("paged", "key_lengths", "sequences"),
    ),
    Mutant(
        name="f4_terms_by_the_key_within_the_split",
        file="device/decode.py",
        before="            z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)\n",
        after="            z = logits(dot, i[:, None], j[None, :] - split_start, q_end, k_end, terms, head, part != FULL)\n",
        outputs=("o", "lse"),
        modelled_on="decoding counts the keys of a bias and of ALiBi from the first key of the split: wrong from the second split on, and in the first one where a window begins it later than at key 0; one split without a window is right",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="f4_merge_stops_at_an_empty_partial",
        file="merge.py",
        before="    _launch(\n        merge_kernel,\n",
        after='    lse = lse.masked_fill((lse == float("-inf")).cumsum(0) > 0, float("-inf"))\n    _launch(\n        merge_kernel,\n',
        outputs=("o", "lse"),
        modelled_on="the merge of a row stops at the first partial that is empty for it: those behind it, a sink too, are left out; right where only the last partials are empty or none is",
        subject="bundled-decode",
        needs=("launch",),
    ),
    Mutant(
        name="f4_decoding_always_ends_at_the_last_key",
        file="decode_parts.py",
        before="        causal=options.causal,\n        window=options.window,\n",
        after='        causal=options.causal and "bottom-right",\n        window=options.window,\n',
        outputs=("o", "lse"),
        modelled_on="decoding aligns a top-left causal mask, and a window with it, at the bottom right; right where a sequence has as many keys as queries, for bottom-right masks, and for the distances of ALiBi",
        subject="bundled-decode",
        needs=("causal",),
    ),
)
