"""Generated mutants that no input can show, each with the reason.

Accepted inputs are meant, of the adapters that run the kernels, interpreted. A mutant is named by its site: its file and function,
and the source line with the edit as `{before -> after}`; ` [2]` is the second of the same text in a function. A site
that a change of the kernels has lost is an error of the tests: the reason must be read again.
"""

from __future__ import annotations

__all__ = ["EQUIVALENT"]

_SITES: dict[str, str | tuple[str, ...]] = {
    "Where the head has as many channels as the tile, the mask of the channels is true everywhere.": (
        "address.locate: if {not EVEN -> True}:",
        "decode.decode_kernel: q = load_rows(q_view.ptr, q_offset, i < sizes.sq, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "decode.decode_kernel: k = load_rows(k_ptr, k_offset, keep, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "decode.decode_kernel: v = load_rows(v_ptr, v_offset, keep, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "decode.decode_kernel: store_rows(o_view.ptr, acc / divisor[:, None], o_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "delta.delta_kernel: o = load_tile(o_head, i, q_end, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "delta.delta_kernel: do = load_tile(do_head, i, q_end, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "dkdv.dkdv_kernel: k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "dkdv.dkdv_kernel: v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "dkdv.dkdv_kernel: q = load_tile(q_head, i, q_end, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "dkdv.dkdv_kernel: do = load_tile(do_head, i, q_end, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "dkdv.dkdv_kernel: store_tile(dk_head, dk * terms.scale, j, sk, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "dkdv.dkdv_kernel: store_tile(dv_head, dv, j, sk, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "dq.dq_kernel: q = load_tile(q_head, i, q_end, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "dq.dq_kernel: do = load_tile(do_head, i, q_end, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "dq.dq_kernel: k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "dq.dq_kernel: v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "dq.dq_kernel: store_tile(dq_head, dq * terms.scale, i, sq, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "forward.forward_kernel: q = load_tile(q_head, i, q_end, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "forward.forward_kernel: k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, {EVEN_D -> False}, ALIGNED)",
        "forward.forward_kernel: v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "forward.forward_kernel: store_tile(o_head, acc / divisor[:, None], i, sq, sizes.dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "merge.channels: if {not EVEN_DV -> True}:",
        'merge.load_partials: ptrs, keep = channels(partials.ptr, offset, lse != float("-inf"), dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)',
        "merge.merged_rows: o = load_partials(partials, lse, p, base, dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "merge.merge_kernel: {EVEN_DV -> False},",
        "merge.merge_kernel: ptrs, keep = channels(merged.ptr, offset, r < rows, dv8, BLOCK_DV, {EVEN_DV -> False}, ALIGNED)",
        "pages.row_tile: if {not EVEN -> True}:",
    ),
    "Every pair of a full tile is visible, or its query is padding of weight 0: applying the mask changes nothing.": (
        "decode.decode_kernel: see = visible(i[:, None], j[None, :], sizes.sq, k_end, band, bits, bits_start, MASK, {part != FULL -> True})",
        "decode.decode_kernel: p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, {part != FULL -> True})",
        "dkdv.dkdv_kernel: see = visible(i[None, :], j[:, None], q_end, k_end, band, bits, bits_start, MASK, {part != FULL -> True})",
        "dkdv.dkdv_kernel: pT = weights(zT, lse2, see, {part != FULL -> True})",
        "dkdv.dkdv_kernel: dsT = score_gradient(pT, dpT, delta, see, {part != FULL -> True})",
        "dq.dq_kernel: see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, {part != FULL -> True})",
        "dq.dq_kernel: z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, {part != FULL -> True})",
        "dq.dq_kernel: p = weights(z, lse2, see, {part != FULL -> True})",
        "dq.dq_kernel: ds = score_gradient(p, dp, delta, see, {part != FULL -> True})",
        "forward.forward_kernel: see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, {part != FULL -> True})",
        "forward.forward_kernel: z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, {part != FULL -> True})",
        "forward.forward_kernel: p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, {part != FULL -> True})",
        "mask.visible: if {MASKED -> True}:",
        "softmax.online_step: if {MASKED -> True}:",
        'softmax.online_step: pivot = {tl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new -> (tl.where(m_new == float("-inf"), 0.0, m_new))}',
        "softmax.weights: if {MASKED -> True}:",
        "softmax.score_gradient: if {MASKED -> True}:",
    ),
    "What `visible` returns for a full tile is never read.": "mask.visible: see = i {== -> !=} i",
    "A tile without a visible pair adds exact zeros: looking for one only saves time.": (
        "dkdv.dkdv_kernel: if part == FULL or {not (BITS & MASK) -> (BITS & MASK)} or any_visible(see):",
        "dq.dq_kernel: if part == FULL or {not (BITS & MASK) -> (BITS & MASK)} or any_visible(see):",
        "forward.forward_kernel: if part == FULL or {not (BITS & MASK) -> (BITS & MASK)} or any_visible(see):",
    ),
    "Where the loop starts at `FULL`, the segment `LEADING` is empty: it begins and ends where the walk begins.": (
        "decode.decode_kernel: for part in tl.static_range({LEADING if LOWER & MASK else FULL -> (LEADING)}, TRAILING + 1):",
        "dkdv.dkdv_kernel: {LEADING if (UPPER | BITS) & MASK == UPPER else FULL -> (LEADING)}, TRAILING + (1 if (LOWER | BITS) & MASK else 0)",
        "dkdv.dkdv_kernel: LEADING if ({UPPER | BITS -> UPPER}) & MASK == UPPER else FULL, TRAILING + (1 if (LOWER | BITS) & MASK else 0)",
        "dq.dq_kernel: for part in tl.static_range({LEADING if (LOWER | BITS) & MASK == LOWER else FULL -> (LEADING)}, TRAILING + 1):",
        "dq.dq_kernel: for part in tl.static_range(LEADING if ({LOWER | BITS -> LOWER}) & MASK == LOWER else FULL, TRAILING + 1):",
        "forward.forward_kernel: for part in tl.static_range({LEADING if (LOWER | BITS) & MASK == LOWER else FULL -> (LEADING)}, TRAILING + 1):",
        "forward.forward_kernel: for part in tl.static_range(LEADING if ({LOWER | BITS -> LOWER}) & MASK == LOWER else FULL, TRAILING + 1):",
    ),
    "Fewer tiles are taken for full, or more are visited; the mask decides every pair of them, and an invisible one adds an exact zero.": (
        "decode.decode_kernel: last = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // sizes.group, {sizes.sq - 1 -> sizes.sq})",
        "mask.sure_end: end = row_end(i, {sq -> sq - 1}, k_end, band, MASK)",
        "mask.sure_end: return {tl.minimum(end, bits_start) if BITS & MASK else end -> (tl.minimum(end, bits_start))}",
        "mask.sure_begin: return key_begin(j, {sq -> sq + 1}, tl.minimum(k_end, bits_start) if BITS & MASK else k_end, band, MASK)",
        "schedule.tile_schedule: full_end = tl.maximum({sure_to -> sure_to - 1}, 0) // STEP * STEP",
    ),
    "It differs only for a tile that starts at the end of the queries, which has no visible row and whose walk is empty or masked.": (
        "mask.sure_end: end = row_end(i, {sq -> sq + 1}, k_end, band, MASK)",
        "schedule.tile_schedule: end = {tl.where(start < sq, row_end(last, sq, k_end, band, MASK), 0) -> (row_end(last, sq, k_end, band, MASK))}",
        "schedule.tile_schedule: end = tl.where(start {< -> <=} sq, row_end(last, sq, k_end, band, MASK), 0)",
    ),
    "A walk that begins at `sq` or behind it is as empty as one that begins at `sq`.": (
        "mask.key_begin: begin = tl.minimum(tl.maximum(j - band.high, 0), {sq -> sq + 1}) if UPPER & MASK else 0",
        "schedule.tile_schedule: begin = key_begin(start, {sq -> sq + 1}, k_end, band, MASK)",
    ),
    "A limit below the first whole tile is rounded down to 0, and 1 is as far below it as 0.": "schedule.tile_schedule: full_end = tl.maximum(sure_to, {0 -> 1}) // STEP * STEP",
    "The number only tells one value of an enumeration from the others.": (
        "pages.module: WHOLE_TILES = tl.constexpr({2 -> 3})",
        "schedule.module: QUERIES = tl.constexpr({1 -> 2})",
    ),
    "Rows between the declared and the stored end have q = 0, dO = 0, delta = 0 and LSE = +inf: the further tiles add exact zeros.": "dkdv.dkdv_kernel: limits = tile_schedule(n0, {q_end -> sq}, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, QUERIES)",
    "The fill reaches rows without values only, whose rowsum(dO * O) and dLSE are 0 anyway.": 'delta.delta_kernel: lse2 = tl.load(row_ptrs(stats.lse2, stats, b, h, q0, i), mask=i < q_end, other={float("-inf") -> -1.0e4})',
    "The other operand is fp32, and the product is promoted to it: the conversion of fp16 and bf16 is exact.": (
        "delta.delta_kernel: delta = tl.sum({o.to(tl.float32) -> o} * do.to(tl.float32), 1)",
        "delta.delta_kernel: delta = tl.sum(o.to(tl.float32) * {do.to(tl.float32) -> do}, 1)",
        "merge.load_partials: return {tl.load(ptrs, mask=keep, other=0.0).to(tl.float32) -> tl.load(ptrs, mask=keep, other=0.0)}",
    ),
    "The other factor is fp32, to which the product is promoted with the same rounding.": "logits.logits: z -= head.slope_log2 * {tl.abs(i + head.shift - j).to(tl.float32) -> tl.abs(i + head.shift - j)}",
    "The argument is declared as uint32 already.": (
        "dropout.keep_tile: w0, w1, w2, w3 = tl.philox(draws.seed, quad[None, :], i[:, None], stream, {draws.offset.to(tl.uint32) -> draws.offset})",
        "dropout.keep_tile: limit = {draws.threshold.to(tl.uint32) -> draws.threshold}",
    ),
    "The maximum of a boolean is taken as an int32 anyway.": "mask.any_visible: return tl.max({see.to(tl.int32) -> see}) != 0",
    "The number is the same in 64 bits.": (
        "address.locate: narrow = {head.row.to(tl.int32) -> head.row}",
        "decode.split_range: low = first + {(tiles * split // splits).to(tl.int32) -> tiles * split // splits}",
        "decode.split_range: high = first + {(tiles * (split + 1) // splits).to(tl.int32) -> tiles * (split + 1) // splits}",
    ),
    "A constant 0 and a tensor of 0 are the same row.": "address.span: first = {b * 0 -> 0}",
    "Lengths beyond the rows are refused, so the clamp at one row more never acts on what is accepted.": "address.declared: return rows if lengths_ptr is None else tl.minimum(tl.maximum(tl.load(lengths_ptr + b), 0), {rows -> rows + 1})",
    "The first tile that is visited rescales the sum by exp2(-inf) = 0; a row that visits none keeps m = -inf, and its LSE is -inf + log2(1).": "decode.decode_kernel: l_i = tl.full([BLOCK_M], {0.0 -> 1.0}, tl.float32)",
    "A row without keys has an accumulator of 0 and m = -inf: neither 0 / 2 nor -inf + log2(2) is another value.": "softmax.finish: divisor = tl.where(l_i == 0.0, {1.0 -> 2.0}, l_i)",
    "In a row without keys m = -inf, and exp2(-inf - 1) is the 0 that exp2(-inf) is.": "softmax.take_sink: pivot = tl.where(empty, {0.0 -> 1.0}, m_new)",
    "At |x| = 1/2, the only place where it differs, both branches meet the stated error of `tanh`.": "logits.tanh: return tl.where(size {< -> <=} _BEND, near, tl.where(x < 0.0, -far, far))",
    "Another division of the tiles among the splits: each tile is still in exactly one, and ends are cut at the last key.": (
        "decode.split_range: tiles = tl.maximum({tl.cdiv(end, BLOCK_N) - first -> tl.cdiv(end, BLOCK_N) + first}, 0).to(tl.int64)",
        "decode.split_range: tiles = tl.maximum(tl.cdiv({end -> end + 1}, BLOCK_N) - first, 0).to(tl.int64)",
    ),
    "A range without tiles gets one, which no segment of its schedule overlaps.": "decode.split_range: tiles = tl.maximum(tl.cdiv(end, BLOCK_N) - first, {0 -> 1}).to(tl.int64)",
    "A step behind the last partial reads masked lanes only, of weight 0.": (
        "merge.statistics: for p0 in range(0, {parts -> parts + 1}, BLOCK_P):",
        "merge.statistics: for p0 in range(0, {parts -> parts + 1}, BLOCK_P): [2]",
        "merge.merged_rows: for p0 in range(0, {parts -> parts + 1}, BLOCK_P):",
    ),
    "The fp16 zero becomes fp32 with the first fp32 sum; the compiler refuses the change of type.": (
        "decode.decode_kernel: acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, {tl.float32 -> tl.float16})",
        "merge.statistics: total = tl.full([BLOCK_M], 0.0, {tl.float32 -> tl.float16})",
    ),
    "Programs behind the last row are masked.": (
        'host_merge._launch: kernel[(-({-rows // constants["BLOCK_M"] -> -rows * constants["BLOCK_M"]}),)](',
        'host_merge._launch: kernel[(-({-rows // constants["BLOCK_M"] -> -rows}),)](',
    ),
    "Without pages the number of the page is never read.": (
        "pages.places: page = {n0 * 0 -> n0}",
        "pages.places: page = n0 * {0 -> 1}",
    ),
    "Without pages the number of the page is 0, and so is its offset.": "pages.place_offsets: if {PAGED != CONTIGUOUS -> True}:",
    "Tables of a pattern that is shared by two batches or heads are built twice, with the same entries.": "host_blocks.from_bool: if live.shape[axis] > 1{ -> + 1} and live.stride(axis) == 0:",
    "`torch.cat` returns a contiguous tensor, and a conversion keeps it so.": "host_blocks._tables: return {torch.cat((order, counts), -1).to(torch.int32).contiguous() -> torch.cat((order, counts), -1).to(torch.int32)}",
    "The function that calls it has made both tensors dense.": (
        "host_merge.merge_forward: {o, lse = dense_rows(o), lse.contiguous() -> pass}",
        "host_merge.merge_forward: o, lse = dense_rows(o), {lse.contiguous() -> lse}",
    ),
    "More channels of a tile than needed are masked: the choice of a tile.": (
        "host_config.padded_dim: return max(16, {1 -> 2} << (dim - 1).bit_length())",
        "host_config.padded_dim: return max(16, 1 << ({dim - 1 -> dim}).bit_length())",
    ),
    "A row of the tree has more words than it needs, which hold 0 and are not read.": "host_tree.from_parents: words = -(-max(({end - start -> end} for start, end in pairwise(limits)), default=0) // WORD)",
    "Dropout with p = 0 keeps every pair and divides by 1.": "host_terms.check_terms: dropout=dropout if dropout is not None and dropout.p {> -> >=} 0 else None,",
    "A tile begins before the last key, so that one key more changes no limit.": "schedule.tile_schedule: sure_from = sure_begin(last, sq, {k_end -> k_end + 1}, band, bits_start, MASK)",
    "The delta of rows behind the declared end is stored as 0.": "dkdv.dkdv_kernel: delta = tl.load(delta_ptrs, mask=i < {q_end -> sq}, other=0.0)[None, :]",
    "What is filled in is multiplied by a remainder of 0.": (
        "schedule.squeeze: after = tl.load(counts_ptr + block + 1, mask=block < blocks{, other=0 -> })",
        "schedule.squeeze: after = tl.load(counts_ptr + block + 1, mask=block < blocks, other={0 -> 1})",
    ),
    "Without a left edge of the window no key is before the first one that is kept.": "decode.decode_kernel: if {LOWER & MASK -> True}:",
    "The segments end at the last key, whatever the end of a split.": "decode.split_range: return low * BLOCK_N, tl.minimum(high * BLOCK_N, {end -> end + 1})",
    "An exponent of -inf less 1 is one of -inf.": 'merge.statistics: pivot = tl.where(m == float("-inf"), {0.0 -> 1.0}, m)',
    "The rows of O behind the declared end are 0, and so is their delta, by their LSE.": "delta.delta_kernel: o = load_tile(o_head, i, {q_end -> sq}, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)",
    "Rows behind the declared end have LSE = +inf, so that their weights are 0 where the mask lets them pass.": "dkdv.dkdv_kernel: see = visible(i[None, :], j[:, None], {q_end -> sq}, k_end, band, bits, bits_start, MASK, part != FULL)",
    "A row behind the declared end is reset after the walk.": "forward.forward_kernel: z = logits(dot, i[:, None], j[None, :], {q_end -> sq}, k_end, terms, head, part != FULL)",
    "A key behind the declared end reaches nothing but its own rows of dK and dV, which are set to 0.": "dkdv.dkdv_kernel: v = load_tile(v_head, j, {k_end -> sk}, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)",
    "A tile wider than the channels holds masked ones: any width gives the same values. A narrow one brings back a defect of assemblers, which `flashverify compile` reports.": (
        'host_arguments.compile_constants: if {kind == "forward" and not aligned and not interpreted -> True}:',
        'host_arguments.compile_constants: if kind {== -> !=} "forward" and not aligned and not interpreted:',
        'host_arguments.compile_constants: if kind == "forward" and {not aligned -> aligned} and not interpreted:',
        "host_arguments.compile_constants: {block_dv = max(block_dv, _NARROWEST) -> pass}",
        "host_arguments.compile_constants: block_dv = {max -> min}(block_dv, _NARROWEST)",
    ),
    "The weights of a padded row reach nothing but its own row of dQ, which is not kept.": 'dq.dq_kernel: lse2 = tl.load(lse2_ptrs, mask=i < q_end, other={float("inf") -> 1.0e4})[:, None]',
    "Both limits are multiples of the step.": "schedule.tile_schedule: full = (full_begin < full_end{ -> - 1}) & (begin < end)",
    "Options are always given.": (
        "host_launch.forward: {options = options or Options() -> pass}",
        "host_launch.backward: {options = options or Options() -> pass}",
    ),
    "The forward, which makes O, gives it a last stride of 1.": (
        "host_launch.backward: {o = o if o.stride(3) == 1 else o.contiguous() -> pass}",
        "host_launch.backward: o = {o if o.stride(3) == 1 else o.contiguous() -> (o.contiguous())}",
        "host_launch.backward: o = o if o.stride(3) {== -> !=} 1 else o.contiguous()",
        "host_launch.backward: o = o if o.stride(3) == 1 else {o.contiguous() -> o}",
    ),
    "It computes dK and dV where nobody asked for them, and drops them: only time shows it.": "host_launch.backward: if {needs[1] or needs[2] -> True}:",
    "In the memory of the CPU, where the kernels are interpreted, the bits are there already; a GPU refuses them.": "host_tree.from_parents: return cls({bits.to(device, copy=True) -> bits})",
}

EQUIVALENT: dict[str, str] = {
    site: reason for reason, sites in _SITES.items() for site in ((sites,) if isinstance(sites, str) else sites)
}
"""Why nothing shows the mutant, by its site."""
