"""Held-out defects of decoding, pages, other caches, chosen keys and rings, the thirteenth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s13_sink_where_every_split_has_keys",
        file="decode.py",
        before="(lse2[:-1] != -torch.inf).any(0)",
        after="(lse2[:-1] != -torch.inf).all(0)",
        outputs=("o", "lse"),
        modelled_on="Dao-AILab/flash-attention#2706: a sink that is kept out of rows without keys by a test that is too strict: in decoding a row of which one split sees no key has no sink; one split, and rows that see keys in every split, are right",
        subject="bundled-decode",
        needs=("sink", "launch"),
    ),
    Mutant(
        name="s13_empty_split_writes_nothing",
        file="device/decode.py",
        before="    store_rows(o_view.ptr, acc / divisor[:, None], o_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n"
        "    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h\n"
        "    tl.store(lse_ptr + lse_row * sizes.sq + i, lse2 * lse_scale, mask=i < sizes.sq)\n",
        after="    some = (i < sizes.sq) & (split_start < split_stop)\n"
        "    store_rows(o_view.ptr, acc / divisor[:, None], o_offset, some, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n"
        "    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h\n"
        "    tl.store(lse_ptr + lse_row * sizes.sq + i, lse2 * lse_scale, mask=some)\n",
        outputs=("o", "lse"),
        modelled_on="pytorch/pytorch#194167: a program that leaves early: a split of decoding in which no key is walked (more splits than tiles of keys, a sequence without keys) writes neither its O nor its LSE of -inf, so that the merge takes in what the memory held; splits that have a tile of keys are right",
        subject="bundled-decode",
    ),
    Mutant(
        name="s13_two_pages_to_a_tile",
        file="device/pages.py",
        before="        page = tl.load(table_ptr + j // page_size, mask=keep, other=0)\n",
        after="        entry = tl.minimum(j // page_size, n0 // page_size + 1)\n"
        "        page = tl.load(table_ptr + entry, mask=keep, other=0)\n",
        outputs=("o", "lse"),
        modelled_on="a tile of keys that is taken to cross the end of one page at most: of a tile that reaches over three pages or more, the keys from the third page on are read from the second one, at their slots, in decoding and in a latent cache; pages of no fewer keys than a tile, and the first two pages of every tile, are right",
        subject="bundled-decode",
        needs=("paged",),
    ),
    Mutant(
        name="s13_rotary_channels_of_q_come_first",
        file="device/latent.py",
        before="    q = load_rows(q_view.ptr, q_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_M, BLOCK_DV]\n"
        "    kv_ptr = kv_view.ptr + hk.to(tl.int64) * kv_view.head\n"
        "    table_ptr = pages.ptr\n"
        "    if PAGED == CONTIGUOUS:\n"
        "        kv_ptr += b.to(tl.int64) * kv_view.batch\n"
        "    else:\n"
        "        table_ptr += b.to(tl.int64) * pages.batch\n"
        "    if ALIGNED:\n"
        "        kv_ptr = tl.multiple_of(kv_ptr, 16)\n"
        "    if BLOCK_R > 0:\n"
        "        q_rope = load_rows(q_view.ptr + sizes.dv8 * 8, q_offset,",
        after="    q = load_rows(q_view.ptr + rope8 * 8, q_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)\n"
        "    kv_ptr = kv_view.ptr + hk.to(tl.int64) * kv_view.head\n"
        "    table_ptr = pages.ptr\n"
        "    if PAGED == CONTIGUOUS:\n"
        "        kv_ptr += b.to(tl.int64) * kv_view.batch\n"
        "    else:\n"
        "        table_ptr += b.to(tl.int64) * pages.batch\n"
        "    if ALIGNED:\n"
        "        kv_ptr = tl.multiple_of(kv_ptr, 16)\n"
        "    if BLOCK_R > 0:\n"
        "        q_rope = load_rows(q_view.ptr, q_offset,",
        outputs=("o", "lse"),
        modelled_on="two orders of the channels of a query of MLA, (latent, rotary) and (rotary, latent): latent cache: the first channels of a query, as many as the rotary part has, are multiplied with the rotary channels of the keys, and those behind with the latent ones; keys and values are read in the right order; right without a rotary part",
        subject="bundled-latent",
    ),
    Mutant(
        name="s13_prefill_without_the_loop_at_the_left_edge",
        file="device/quantised/attention.py",
        before="    for part in tl.static_range(LEADING if LOWER & MASK else FULL, TRAILING + 1):\n"
        "        start, stop = segment(limits, part)\n"
        "        for n0 in range(start, stop, BLOCK_N):\n",
        after="    for part in tl.static_range(FULL, TRAILING + 1):\n"
        "        start, stop = segment(limits, part)\n"
        "        for n0 in range(start, stop, BLOCK_N):\n",
        outputs=("o", "lse"),
        modelled_on="flashinfer-ai/flashinfer#3682: a prefill of fp8 that lacks the loop over the tiles at the left edge of a window: the forward over codes leaves out the tiles of keys that the left side of a window cuts, in tiles of rows that see a whole tile of keys behind them; windows so narrow that no tile is whole, a right side alone, decoding, and all without a window are right",
        subject="bundled-quantised",
        needs=("window",),
    ),
    Mutant(
        name="s13_scales_are_largest_values",
        file="quantised/cache.py",
        before="            scale=Scales(self.scale, *self._group_steps(self.scale)),\n",
        after="            scale=Scales(\n"
        '                amax := self.scale / {"e4m3": 448, "e5m2": 57344, "int8": 127, "int4": 7}[self.format],\n'
        "                *self._group_steps(amax),\n"
        "            ),\n",
        outputs=("o", "lse"),
        modelled_on="NVIDIA/TransformerEngine, which keeps the largest value (amax) of a tensor beside its scale: the scales of K and V are taken for largest values and divided by the largest number of the format (448, 57344, 127, 7), so that all numbers are too small by that factor; the scales of q, and zero points, are right",
        subject="bundled-quantised",
    ),
    Mutant(
        name="s13_block_number_taken_for_its_first_key",
        file="device/selection.py",
        before="    j = number * selected.keys + lane % selected.keys  # flashverify",
        after="    j = number + lane % selected.keys  # flashverify",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="FlashMLA's sparse indices, which name keys, beside those of other kernels, which name blocks: chosen keys: the number of a block is taken for that of its first key in forward and dQ, so that block n holds the keys n to n + size - 1; dK and dV have the right keys and the LSE of the others; blocks of one key, and block 0, are right",
        subject="bundled-selected",
    ),
    Mutant(
        name="s13_ring_weights_change_places",
        file="ring/passes.py",
        before="torch.stack([before[1], lse_part]))\n",
        after="torch.stack([lse_part, before[1]]))\n",
        outputs=("o", "dq", "dk", "delta"),
        modelled_on="two arguments in the wrong order: where a ring merges what a row has so far with the next part of the keys, each of the two has the LSE of the other as its weight; the LSE is right, and so are rows that one part of the keys holds and two parts of equal LSE; delta, dQ and dK follow the O that is wrong",
        subject="bundled-ring",
    ),
)
