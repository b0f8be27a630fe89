"""Held-out defects of decoding: splits, pages, latent and quantised caches, chosen keys and merges, the eighteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s18_only_split_beside_a_sink_in_natural_units",
        file="decode.py",
        before="            lse_scale=_LN_2 if whole else 1.0,\n",
        after="            lse_scale=_LN_2 if call.splits == 1 else 1.0,\n",
        outputs=("o", "lse"),
        modelled_on="flashinfer-ai/flashinfer#2113, two bases that meet in a merge: the LSE of an only split is written in natural units, as one that is returned is, although with a sink it is merged with the part of the sink in base 2: the keys count with exp2 of the natural LSE, ln 2 times what it should be in the exponent, against the right sink, and the LSE is the log of that sum; two splits or more, and all without a sink are right",
        subject="bundled-decode",
        needs=("sink",),
    ),
    Mutant(
        name="s18_merged_row_without_keys_has_an_lse_of_zero",
        file="device/merge.py",
        before="    tl.store(merged_lse_ptr + r, (m + tl.log2(total) * from_log2) * lse_scale, mask=r < rows)\n",
        after="    tl.store(merged_lse_ptr + r, (pivot + tl.log2(total) * from_log2) * lse_scale, mask=r < rows)\n",
        outputs=("lse",),
        modelled_on="a pivot that stands in for the maximum where every part is empty and is then reported: where partial results are merged, a row that sees no key in any of them has an LSE of 0 in place of -inf, which a further merge would count as weight; its O is 0 as it should be; rows that see a key in some part, and an only split without a sink, which is not merged, are right",
        subject="bundled-decode",
    ),
    Mutant(
        name="s18_keys_are_read_from_the_window_of_the_last_row",
        file="device/decode.py",
        before="    k_begin = row_begin(first, band, MASK)\n",
        after="    k_begin = row_begin(last, band, MASK)\n",
        outputs=("o", "lse"),
        modelled_on="vllm-project/vllm#30887, what is read outside the window: with a left side of a window keys are read from where the window of the last row of a tile begins, not that of its first: for earlier rows of the tile the keys of their windows before that are zeros, which take part with a dot product of 0 and a value of 0; one query a tile, the last query of each tile, windows whose left side reaches the first key for all rows, and latent and quantised caches are right",
        subject="bundled-decode",
        needs=("window",),
    ),
    Mutant(
        name="s18_pages_of_a_tile_taken_for_neighbours",
        file="device/pages.py",
        before="        page = tl.load(table_ptr + j // page_size, mask=keep, other=0)\n",
        after="        page = tl.load(table_ptr + n0 // page_size) + j // page_size - n0 // page_size\n",
        outputs=("o", "lse"),
        modelled_on="a tile of keys that is addressed from its first page: where tiles cross the ends of pages, the table is read for the page of the tile's first key alone, and the later pages of the tile are taken for those that lie behind it in the pool: keys of the second page of a tile and of later ones are those of other pages, of other sequences or of none, and where the first page of a tile lies before every window and was freed its entry is followed all the same; pages that are multiples of a tile, tables whose pages happen to follow each other, keys in the first page of their tile, quantised caches, and no pages are right; decoding and latent caches",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s18_rotary_part_of_the_first_sequence",
        file="device/latent.py",
        before="        rope_ptr = kv_ptr + sizes.dv8 * 8\n",
        after="        rope_ptr = kv_view.ptr + hk.to(tl.int64) * kv_view.head + sizes.dv8 * 8\n",
        outputs=("o", "lse"),
        modelled_on="a second pointer into a buffer that is made from the start of the buffer, not from the first pointer: in a latent cache without pages the rotary part of the keys is that of the first sequence for every sequence, while the latent channels, in the dot products and as values, are its own; the first sequence, caches in pages, and caches without a rotary part are right",
        subject="bundled-latent",
        needs=("sequences",),
    ),
    Mutant(
        name="s18_eight_besides_the_zero_points",
        file="device/quantised/codes.py",
        before="    elif FORMAT == INT4:\n        number = number - 8.0\n",
        after="    if FORMAT == INT4:\n        number = number - 8.0\n",
        outputs=("o", "lse"),
        modelled_on="AutoGPTQ and its kernels, which differ in whether the stored zero point has an offset: of int4 codes with zero points the 8 that stands for the zero of codes without is subtracted besides the zero point: every channel of K and V is 8 scales too small; the LSE changes with the scales of the keys and the sum of q, and O is lower by 8 times the weighted mean of V's scales; int4 without zero points, and the other formats are right",
        subject="bundled-quantised-decode",
        needs=("int4", "zeros"),
    ),
    Mutant(
        name="s18_lists_of_sequences_one_head_apart",
        file="selection.py",
        before="        batch=heads if batch > 1 else 0,\n",
        after="        batch=1 if batch > 1 else 0,\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="a stride of 1 that is right in its unit on one axis and used on two: where the lists of chosen blocks are of each sequence and of each kv head, those of sequence b and kv head h are taken from place b + h, not b kv_heads + h: sequences after the first walk lists of other heads or sequences, in the forward, dQ, and dK and dV alike; the first sequence, lists that all sequences share, and lists that all kv heads share are right",
        subject="bundled-selected",
        needs=("selection", "kv_heads", "sequences"),
    ),
)
