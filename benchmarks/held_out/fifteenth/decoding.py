"""Held-out defects of decoding, pages, other caches, chosen keys and rings, the fifteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s15_values_from_the_page_of_the_tile_before",
        file="device/decode.py",
        before="            v_offset = place_offsets(page, slot, v_view.batch, v_view.row, PAGED)\n",
        after="            if PAGED == 2:  # whole tiles: fetched while the tile before was multiplied\n"
        "                page = tl.load(table_ptr + tl.maximum(n0 - BLOCK_N, split_start) // pages.size)\n"
        "            v_offset = place_offsets(page, slot, v_view.batch, v_view.row, PAGED)\n",
        outputs=("o",),
        modelled_on="a number of a page that is fetched ahead for K and used a tile late for V: decoding whose pages hold whole tiles of keys reads the values of the first tile of a page (of every tile, where a page is one) from the page of the tile before, at their slots; the first tile of a split, the LSE, other page sizes, and caches without pages are right",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s15_page_table_by_page_then_sequence",
        file="decode.py",
        before="    table, mask = options.block_table, call.mask\n",
        after="    table, mask = options.block_table, call.mask\n"
        "    if table is not None and table.numel():\n"
        "        table = table.reshape(-1, table.shape[0]).t().contiguous()\n",
        outputs=("o", "lse"),
        modelled_on="a page table [sequences, pages] whose memory is read as [pages, sequences]: page p of sequence b is entry p * B + b: keys and values come from pages of other sequences and places; a batch of one, one page to a sequence, and caches without pages are right",
        subject="bundled-decode",
        needs=("paged", "sequences"),
    ),
    Mutant(
        name="s15_latent_scale_of_yarn",
        file="latent.py",
        before="            scale_log2=call.scale * _LOG2_E,\n",
        after="            scale_log2=call.scale * _LOG2_E * (1.0 if options.scale is not None else (0.1 * math.log(40) + 1) ** 2),\n",
        outputs=("o", "lse"),
        modelled_on="DeepSeek-V3's attention, whose softmax scale holds the square of YaRN's mscale: latent cache: where no scale is given the logits are 1.874 times too large; a scale that is given is right",
        subject="bundled-latent",
    ),
    Mutant(
        name="s15_row_sum_of_scaled_weights",
        file="device/quantised/attention.py",
        before="            keep = j < k_end\n"
        "            z = logits(q, q_factor, k_only, k_codes, b, hk, j, keep, scale_log2, sizes.d8, BLOCK_D, EVEN_D,\n"
        "                       FORMAT, MODE, ONE_K, DTYPE, WORDS, PRECISION)  # fmt: skip\n"
        "            p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)\n",
        after="            keep = j < k_end\n"
        "            z = logits(q, q_factor, k_only, k_codes, b, hk, j, keep, scale_log2, sizes.d8, BLOCK_D, EVEN_D,\n"
        "                       FORMAT, MODE, ONE_K, DTYPE, WORDS, PRECISION)  # fmt: skip\n"
        "            before = l_i\n"
        "            p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)\n"
        "            if MODE == 1 and not SCALE_LAST:  # the scales of V are folded into the weights\n"
        "                l_i = before * alpha + tl.sum(p * load_scales(v_codes, b, hk, j, keep)[None, :], 1)\n",
        outputs=("o", "lse"),
        modelled_on="ModelTC/lightllm's and others' int8 caches: a row sum that is taken of the weights after the scales of V were folded into them: the forward over codes with scales of V by key or by block divides by the sum of weight times scale: O is the mean of the codes of V, with their scales as further weights, and the LSE is off by the log of a mean scale; one scale of V for a head or all, the mode in which operands are dequantised, and decoding are right",
        subject="bundled-quantised",
    ),
    Mutant(
        name="s15_places_behind_the_last_part",
        file="device/merge.py",
        before="        total += tl.sum(tl.exp2((lse - pivot[None, :]) * to_log2), 0)\n",
        after="        lse = tl.where((p0 + tl.arange(0, BLOCK_P))[:, None] < parts, lse, 0.0)\n"
        "        total += tl.sum(tl.exp2((lse - pivot[None, :]) * to_log2), 0)\n",
        outputs=("o", "lse"),
        modelled_on="facebookresearch/xformers 3e4a1b4b: a reduction over a power of two of parts whose padding is 0: where more than eight partials are merged (a sink is one of them) and their number is no power of two, in decoding of every kind, each place behind the last one counts in the sum of weights as a partial with an LSE of 0: O is too small and the LSE too large, the more so the lower the LSE of the row; eight partials or fewer, powers of two, and rows whose LSE is far above 0 are right",
        subject="bundled-decode",
    ),
    Mutant(
        name="s15_number_of_blocks_of_the_first_list",
        file="device/selected_forward.py",
        before="    count = tl.load(selected.counts + number)\n",
        after="    count = tl.load(selected.counts + n)\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="an offset that is added to one of two tables: chosen keys: where sequences or kv heads have lists of their own the forward walks as many blocks of a list as the list with its number of the first kv head of the first sequence has: the last blocks of longer lists are lost; shorter lists, shared lists, the first kv head of the first sequence, and dQ, dK and dV (but for the O and the LSE that they start from) are right",
        subject="bundled-selected",
    ),
    Mutant(
        name="s15_ring_left_side_without_the_shift",
        file="ring/passes.py",
        before="    return None if left is None else shift - left, ",
        after="    return None if left is None else -left, ",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="NVIDIA/TransformerEngine#1197: a window aligned otherwise than the causal mask it stands with: a ring: under a bottom-right mask the left side of a window is measured from row i, its right side from row i + keys - rows: with more keys than rows rows see that many keys before their window, with fewer they lose them; as many keys as rows, top-left masks, and no left side are right",
        subject="bundled-ring",
        needs=("causal", "window"),
    ),
    Mutant(
        name="s15_ring_keys_and_values_change_places",
        file="ring/passes.py",
        before="            begun.add(part.piece)\n        if ahead is not None:\n            held = ahead.wait()\n",
        after="            begun.add(part.piece)\n        if ahead is not None:\n            held = ahead.wait()\n"
        "            if k.shape[3] == v.shape[3]:  # two messages of one size\n"
        "                held.reverse()\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="two messages of one size between the same two ranks, without tags, which are received in the other order: a ring whose head dims of K and V are equal takes what arrives first for K: in every second step of the forward (of the keys that came from the rank before, three before, ...) keys and values have changed places; one rank, unequal head dims, and the backward, but for the O and the LSE that it starts from, are right",
        subject="bundled-ring",
    ),
)
