"""Held-out defects of decoding, pages, other caches, chosen keys and the ring, the ninth set; see `benchmarks/README.md`."""

from flashverify.mutants.mutant import Mutant

__all__ = ["DEFECTS"]

DEFECTS: tuple[Mutant, ...] = (
    Mutant(
        name="s9_whole_tiles_of_packed_rows_alone",
        file="decode_validation.py",
        before="        return self.splits * self.batch * self.kv_heads * -(-self.group * self.sq // self.config.block_m)\n",
        after="        tiles = max(self.group * self.sq // self.config.block_m, 1)\n"
        "        return self.splits * self.batch * self.kv_heads * tiles\n",
        outputs=("o", "lse"),
        modelled_on="a grid by a division that rounds down: where the packed rows of a kv head (queries times heads of the group) are more than a tile and no multiple of it, decoding launches a tile too few for each: the last programs, so the last splits, kv heads and sequences, are not computed and what the memory held stays; up to one tile, and whole tiles, are right",
        subject="bundled-decode",
    ),
    Mutant(
        name="s9_page_table_begins_with_the_window",
        file="device/decode.py",
        before="            page, slot = places(table_ptr, n0, j, keep, pages.size, PAGED)\n",
        after="            if PAGED != CONTIGUOUS and LOWER & MASK:\n"
        "                page, slot = places(table_ptr - k_begin // pages.size, n0, j, keep, pages.size, PAGED)\n"
        "            else:\n"
        "                page, slot = places(table_ptr, n0, j, keep, pages.size, PAGED)\n",
        outputs=("o", "lse"),
        modelled_on="a table of two conventions: with pages and a left side of a window decoding takes the first entry of the page table for the page in which the window of the tile's first query begins, as of a cache that keeps the pages of the window alone: keys are read from earlier entries; windows that begin in the first page are right, and so are caches without pages or windows",
        subject="bundled-decode",
        needs=("paged", "window"),
    ),
    Mutant(
        name="s9_rotary_products_scaled_twice",
        file="device/latent.py",
        before="                dot = tl.dot(q_rope, tl.trans(k_rope), dot, input_precision=PRECISION)\n",
        after="                rope = tl.dot(q_rope, tl.trans(k_rope), input_precision=PRECISION)\n"
        "                dot += rope * (scale_log2 * 0.6931471805599453)\n",
        outputs=("o", "lse"),
        modelled_on="latent cache: a scale that is applied to one of two parts before their sum: the product of the rotary channels is multiplied by the scale, and by it once more with that of the latent ones; right for a scale of 1 and for caches without rotary channels",
        subject="bundled-latent",
    ),
    Mutant(
        name="s9_zero_points_one_higher",
        file="device/quantised/codes.py",
        before="        number = number - zero.to(tl.float32)[:, None]\n",
        after="        number = number - (zero.to(tl.float32)[:, None] + 1.0)\n",
        outputs=("o", "lse"),
        modelled_on="AutoGPTQ's files hold zero points less one: a kernel that adds the one to zero points that are stored as they are: every code of K and V is taken relative to a zero point that is one too high; right without zero points",
        subject="bundled-quantised",
        needs=("zeros",),
    ),
    Mutant(
        name="s9_minus_zero_is_the_nan_of_fnuz",
        file="device/quantised/codes.py",
        before='        number = tl.where((x & 0x7F) == 0x7F, float("nan"), number)\n',
        after='        number = tl.where(x == 0x80, float("nan"), number)\n',
        outputs=("o", "lse"),
        modelled_on="e4m3 of two vendors, of which one has its NaN in place of -0: the code 0x80 of K and V (and q) is NaN, where -0 is meant, and 0x7F and 0xFF are 480 and -480 in place of NaN: rows that see a key with a -0 are NaN; all other codes, the other formats, and V in the mode of fp8 products, are right",
        subject="bundled-quantised",
        needs=("e4m3",),
    ),
    Mutant(
        name="s9_chosen_blocks_by_the_first_row",
        file="device/selected_forward.py",
        before="        k = load_rows(k_ptr, j.to(tl.int64) * k_view.row, keep,",
        after="        if CAUSAL:\n"
        "            see = see & (j // selected.keys * selected.keys <= n * selected.rows + shift)[None, :]\n"
        "        k = load_rows(k_ptr, j.to(tl.int64) * k_view.row, keep,",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="chosen keys: a walk that ends at the first block behind the diagonal of the first query of a list: under a causal mask the other queries that share the list do not see the blocks that begin between that diagonal and their own, in the forward; lists of one query, and blocks that begin before it, are right; dQ, dK and dV see them and start from the wrong LSE",
        subject="bundled-selected",
        needs=("causal",),
    ),
    Mutant(
        name="s9_later_ranks_lie_behind_the_diagonal",
        file="ring/passes.py",
        before="    low, high = _band(ring, options)\n    first_row = 0\n",
        after="    low, high = _band(ring, options)\n"
        "    if options.causal is not None and owner > ring.rank:\n"
        "        return\n"
        "    first_row = 0\n",
        outputs=("o", "lse", "dq", "dk", "dv", "delta"),
        modelled_on="zhuzilin/ring-flash-attention: a step of a causal ring that is skipped where the keys come from a later rank, which is right for contiguous parts alone: with stripes and zigzag rows lose the keys before them that later ranks hold, forward and backward; right for contiguous parts of as many queries as keys, and without a causal mask",
        subject="bundled-ring",
        needs=("causal",),
    ),
)
