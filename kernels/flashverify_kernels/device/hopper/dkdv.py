from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flashverify_kernels.device.address import span
from flashverify_kernels.device.hopper.barriers import (
    following,
    make_barriers,
    make_tiles,
    matrix,
    meet,
    release,
)
from flashverify_kernels.device.hopper.queries import GROUPS, ROWS, fetch_all, of_queries, visible
from flashverify_kernels.device.hopper.ragged import place
from flashverify_kernels.device.hopper.walk import count_tiles, in_order, position, walk_of, within
from flashverify_kernels.device.order import packed_place, tile_of
from flashverify_kernels.device.schedule import FULL, LEADING, QUERIES, TRAILING

_UNSPECIALISED = [
    "lse2_ptr",
    "delta_ptr",
    "live_ptr",
    "scale",
    "scale_log2",
    "heads",
    "group",
    "sq",
    "sk",
    "low",
    "high",
]
_UNSPECIALISED += ["live_batch", "live_head", "block_rows", "block_keys"]
_UNSPECIALISED += ["cu_q_ptr", "cu_k_ptr", "packed", "halvings", "rows", "align_end"]


@gluon.jit(do_not_specialize=_UNSPECIALISED, do_not_specialize_on_alignment=_UNSPECIALISED)
def hopper_dkdv_kernel(
    q_tiles,
    k_tiles,
    v_tiles,
    do_tiles,
    dk_tiles,
    dv_tiles,
    lse2_ptr,
    delta_ptr,
    scale,
    scale_log2,
    heads,
    group,
    sq,
    sk,
    low,
    high,
    live_ptr,
    live_batch,
    live_head,
    block_rows,
    block_keys,
    cu_q_ptr,
    cu_k_ptr,
    packed,
    halvings,
    rows,
    align_end,
    UPPER: gl.constexpr,
    EVEN: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Compute dK and dV of 128 keys: one program per (batch, kv head, 128 keys), which walks the query heads of its group.

    Args:
        q_tiles: descriptor of Q `[B, heads, sq, D]`, tiles of queries.
        k_tiles: descriptor of K `[B, heads / group, sk, D]`, tiles of 64 keys.
        v_tiles: descriptor of V, likewise.
        do_tiles: descriptor of dO, in the shape and the tiles of Q.
        dk_tiles: descriptor of dK, in the shape and the tiles of K.
        dv_tiles: descriptor of dV, likewise.
        lse2_ptr: LSE, log base 2, `[B, heads, sq]` fp32 contiguous.
        delta_ptr: rowsum(dO * O) - dLSE, likewise.
        scale: of the logits.
        scale_log2: factor of a dot product, scale * log2(e).
        heads: query heads.
        group: query heads per kv head.
        sq: queries.
        sk: keys.
        low: query i sees the keys from i + low on; None: it sees the first.
        high: query i sees the keys up to i + high, where `UPPER`.
        live_ptr: the tables of the live blocks along the queries, see `schedule`; None: there is no pattern, and no number of it.
        live_batch: step of the tables.
        live_head: likewise.
        block_rows: queries per block, a multiple of those of a tile.
        block_keys: keys per block, a multiple of 128.
        cu_q_ptr: where the queries of packed sequences begin; None: there are none, and no number of them. Then descriptors and statistics
            are those of `[1, heads, rows, D]`, and `low` and `high` are those of sequences with as many queries as keys.
        cu_k_ptr: where their keys begin.
        packed: number of sequences.
        halvings: see `device.order`.
        rows: queries of all sequences.
        align_end: 1 if the edges start at the last key, 0 if at the first.
        UPPER: whether there is an upper edge.
        EVEN: whether there are no packed sequences, tiles divide the queries, and LSE and delta are 16-byte aligned.
        STAGES: tiles of Q and of dO that are on their way or in use.
    """
    BLOCK_N: gl.constexpr = GROUPS * ROWS
    BLOCK_M: gl.constexpr = q_tiles.block_type.shape[-2]
    blocks = (live_ptr, live_batch, live_head, block_rows, block_keys)
    q0, k0 = 0, 0
    if cu_k_ptr is None:
        bh, tile = tile_of(count_tiles(sk, blocks, block_keys, BLOCK_N), UPPER and low is None)
        b = bh // (heads // group)
        hk = bh % (heads // group)
        if live_ptr is not None and low is None and not UPPER:
            tile = in_order(tile, b, hk * group, sq, blocks, BLOCK_N, QUERIES)
        row = (b.to(gl.int64) * heads + hk * group) * sq
        step = sq
    else:
        b, hk, tile = packed_place(gl.program_id(0), cu_k_ptr, packed, halvings, heads // group, BLOCK_N, False)
        q0, sq = span(cu_q_ptr, b, sq)
        k0, sk = span(cu_k_ptr, b, sk)
        row = hk.to(gl.int64) * group * rows + q0
        step = rows
        shift = align_end * (sk - sq)
        high += shift
        if low is not None:
            low += shift
    n0 = tile * BLOCK_N
    count = (sq + BLOCK_M - 1) // BLOCK_M
    if cu_k_ptr is not None:
        count = gl.where(n0 < sk, count, 0)
    begin = 0
    if UPPER:
        begin = gl.minimum(gl.minimum(gl.maximum(n0 - high, 0), sq) // BLOCK_M, count)
    edges = (low, high, sk)
    if low is not None and live_ptr is None:
        begin, _, _, count, _ = walk_of(n0, b, hk, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER, QUERIES)

    k_s = make_tiles(k_tiles, GROUPS)
    v_s = make_tiles(v_tiles, GROUPS)
    q_s = make_tiles(q_tiles, STAGES)
    do_s = make_tiles(do_tiles, STAGES)
    k_full = make_barriers(GROUPS, 1)
    v_full = make_barriers(GROUPS, 1)
    q_full = make_barriers(STAGES, 1)
    do_full = make_barriers(STAGES, 1)
    q_empty = make_barriers(STAGES, GROUPS)
    do_empty = make_barriers(STAGES, GROUPS)
    fence_async_shared()
    meet()
    tiles_of = (q_s, k_s, v_s, do_s)
    full = (q_full, k_full, v_full, do_full)
    empty = (q_empty, do_empty)
    where = (b, hk, n0, begin, count, group, q0, k0, cu_k_ptr)
    results = (dk_tiles, dv_tiles, scale, scale_log2)
    mask = (sq, edges, blocks)
    statistics = (lse2_ptr + row, delta_ptr + row, step)
    gl.warp_specialize(
        [
            (_compute, (0, tiles_of, full, empty, where, statistics, results, mask, UPPER, EVEN)),
            (_compute, (1, tiles_of, full, empty, where, statistics, results, mask, UPPER, EVEN)),
            (fetch_all, (q_tiles, k_tiles, v_tiles, do_tiles, tiles_of, full, empty, where, mask, UPPER)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _compute(
    c: gl.constexpr,
    tiles_of,
    full,
    empty,
    where,
    statistics,
    results,
    mask,
    UPPER: gl.constexpr,
    EVEN: gl.constexpr,
):
    """The keys of one group of warps. Tiles are kept transposed, so that P^T and dS^T stay in registers as left operands."""
    q_s, k_s, v_s, do_s = tiles_of
    q_full, k_full, v_full, do_full = full
    q_empty, do_empty = empty
    b, hk, n0, begin, count, group, _q0, k0, cu_ptr = where
    lse2_ptr, delta_ptr, step = statistics
    dk_tiles, dv_tiles, scale, scale_log2 = results
    sq, edges, blocks = mask
    low, high, sk = edges
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[-2]
    BLOCK_D: gl.constexpr = q_s.shape[-1]
    BLOCK_N: gl.constexpr = GROUPS * ROWS
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)

    first_key = n0
    n0 += c * ROWS
    j = n0 + gl.arange(0, ROWS, gl.SliceLayout(1, Z))
    whole = begin
    if UPPER:  # from this tile on, every query sees every key
        whole = gl.minimum(gl.maximum((n0 + ROWS - 1 - high + BLOCK_M - 1) // BLOCK_M, begin), count)
    trailing = count
    table = blocks[0]
    if low is not None and blocks[0] is None:
        _, whole, trailing, _, _ = walk_of(n0, b, hk, sq, sk, low, high, blocks, BLOCK_M, ROWS, UPPER, QUERIES)
        whole, trailing = within(begin, whole, trailing, count)
    k = matrix(k_s.index(c))
    v = matrix(v_s.index(c))
    none = gl.zeros([ROWS, BLOCK_M], gl.float32, Z)
    dk = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
    dv = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
    mbarrier.wait(k_full.index(c), 0)
    mbarrier.wait(v_full.index(c), 0)
    slot = 0
    phase = 0
    for member in range(group):
        if blocks[0] is not None:
            h = hk * group + member
            begin, _, _, count, _ = walk_of(
                first_key, b, h, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER, QUERIES
            )
            _, whole, trailing, _, table = walk_of(n0, b, h, sq, sk, low, high, blocks, BLOCK_M, ROWS, UPPER, QUERIES)
            whole, trailing = within(begin, whole, trailing, count)
            if low is None:
                trailing = count
                if not UPPER:
                    whole = begin
        first = member.to(gl.int64) * step  # type: ignore[attr-defined]  # a tensor to the compiler
        lse2_head = gl.multiple_of(lse2_ptr + first, 16) if EVEN else lse2_ptr + first
        delta_head = gl.multiple_of(delta_ptr + first, 16) if EVEN else delta_ptr + first
        for part in gl.static_range(
            FULL if low is None and not UPPER else LEADING, TRAILING + (0 if low is None else 1)
        ):
            if part == LEADING:
                start, stop = begin, whole
            elif part == FULL:
                start, stop = whole, trailing
            else:
                start, stop = trailing, count
            for t in range(start, stop):
                m0 = position(t, table, count, sq, blocks, blocks[3], BLOCK_M)
                i = m0 + gl.arange(0, BLOCK_M, gl.SliceLayout(0, Z))
                lse2 = of_queries(lse2_head, i, sq, float("inf"), EVEN)  # padding has weights of 0
                delta = of_queries(delta_head, i, sq, 0.0, EVEN)
                q = matrix(q_s.index(slot))
                do = matrix(do_s.index(slot))
                mbarrier.wait(q_full.index(slot), phase)
                dot = warpgroup_mma(k, q.permute([1, 0]), none, use_acc=False, is_async=True)
                mbarrier.wait(do_full.index(slot), phase)
                dp = warpgroup_mma(v, do.permute([1, 0]), none, use_acc=False, is_async=True)
                dot = warpgroup_mma_wait(1, [dot])
                p = gl.exp2(dot * scale_log2 - lse2[None, :])
                if part != FULL:
                    p = gl.where(visible(j, m0, edges, p, UPPER), p, 0.0)
                dv = warpgroup_mma(gl.convert_layout(p.to(q.dtype), WEIGHTS), do, dv, is_async=True)
                dp = warpgroup_mma_wait(1, [dp])
                ds = p * (dp - delta[None, :])
                if part != FULL:
                    ds = gl.where(visible(j, m0, edges, p, UPPER), ds, 0.0)
                dk = warpgroup_mma(gl.convert_layout(ds.to(q.dtype), WEIGHTS), q, dk, is_async=True)
                dv = warpgroup_mma_wait(1, [dv])
                release(do_empty.index(slot))
                dk = warpgroup_mma_wait(0, [dk])
                release(q_empty.index(slot))
                slot, phase = following(slot, phase, STAGES)

    meet()
    k.store((dk * scale).to(k.dtype))
    v.store(dv.to(v.dtype))
    fence_async_shared()
    meet()
    tma.async_copy_shared_to_global(dk_tiles, place(cu_ptr, b, hk, n0, k0, sk), k_s.index(c))
    tma.async_copy_shared_to_global(dv_tiles, place(cu_ptr, b, hk, n0, k0, sk), v_s.index(c))
    tma.store_wait(0)
