from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flashverify_kernels.device.hopper.barriers import (
    following,
    make_barriers,
    make_tiles,
    matrix,
    meet,
    release,
)
from flashverify_kernels.device.hopper.queries import ROWS, of_queries, visible
from flashverify_kernels.device.hopper.walk import position, walk_of, within
from flashverify_kernels.device.order import tile_of
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


@gluon.jit(do_not_specialize=_UNSPECIALISED, do_not_specialize_on_alignment=_UNSPECIALISED)
def trial_dkdv_kernel(
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
    UPPER: gl.constexpr,
    STAGES: gl.constexpr,
    GROUPS: gl.constexpr,
    AHEAD: gl.constexpr,
    OWN: gl.constexpr,
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
        UPPER: whether there is an upper edge.
        EVEN: whether tiles divide the queries, and LSE and delta are 16-byte aligned.
        STAGES: tiles of Q and of dO that are on their way or in use.
    """
    BLOCK_N: gl.constexpr = GROUPS * ROWS
    BLOCK_M: gl.constexpr = q_tiles.block_type.shape[2]
    per_head = (sk + BLOCK_N - 1) // BLOCK_N
    bh, tile = tile_of(per_head, UPPER and low is None)
    n0 = tile * BLOCK_N
    b = bh // (heads // group)
    hk = bh % (heads // group)
    count = (sq + BLOCK_M - 1) // BLOCK_M
    begin = 0
    if UPPER:
        begin = gl.minimum(gl.maximum(n0 - high, 0), sq) // BLOCK_M
    blocks = (live_ptr, live_batch, live_head, block_rows, block_keys)
    edges = (low, high, sk)
    if low is not None and live_ptr is None:
        begin, _, _, count, _ = walk_of(n0, b, hk, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER, QUERIES)

    k_s = make_tiles(k_tiles, GROUPS)
    v_s = make_tiles(v_tiles, GROUPS)
    q_s = make_tiles(q_tiles, STAGES)
    do_s = make_tiles(do_tiles, STAGES)
    ROW: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    lse_s = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], ROW)
    delta_s = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], ROW)
    own_full = make_barriers(GROUPS, 1)
    full = make_barriers(STAGES, 2)
    empty = make_barriers(STAGES, GROUPS)
    fence_async_shared()
    meet()
    tiles_of = (q_s, k_s, v_s, do_s, lse_s, delta_s)
    bars = (own_full, full, empty)
    where = (b, hk, n0, begin, count, group)
    row = (b.to(gl.int64) * heads + hk * group) * sq
    walk = (dk_tiles, dv_tiles, scale, scale_log2)
    stats = (lse2_ptr + row, delta_ptr + row)
    mask = (sq, edges, blocks)
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (_compute, (0, tiles_of, bars, where, walk, mask, UPPER, GROUPS, AHEAD, OWN)),
                (_fetch_all, (q_tiles, k_tiles, v_tiles, do_tiles, stats, tiles_of, bars, where, mask, UPPER, GROUPS, AHEAD)),
            ],
            [1],
            [24],
        )
    elif GROUPS == 2:
        gl.warp_specialize(
            [
                (_compute, (0, tiles_of, bars, where, walk, mask, UPPER, GROUPS, AHEAD, OWN)),
                (_compute, (1, tiles_of, bars, where, walk, mask, UPPER, GROUPS, AHEAD, OWN)),
                (_fetch_all, (q_tiles, k_tiles, v_tiles, do_tiles, stats, tiles_of, bars, where, mask, UPPER, GROUPS, AHEAD)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_compute, (0, tiles_of, bars, where, walk, mask, UPPER, GROUPS, AHEAD, OWN)),
                (_compute, (1, tiles_of, bars, where, walk, mask, UPPER, GROUPS, AHEAD, OWN)),
                (_compute, (2, tiles_of, bars, where, walk, mask, UPPER, GROUPS, AHEAD, OWN)),
                (_fetch_all, (q_tiles, k_tiles, v_tiles, do_tiles, stats, tiles_of, bars, where, mask, UPPER, GROUPS, AHEAD)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )


@gluon.jit
def _statistics(stats, member, sq, m0, BLOCK_M: gl.constexpr, LANES: gl.constexpr):
    i = m0 + gl.arange(0, BLOCK_M, LANES)
    first = member.to(gl.int64) * sq
    return of_queries(stats[0] + first, i, sq, float("inf"), False), of_queries(stats[1] + first, i, sq, 0.0, False)


@gluon.jit
def _fetch_slot(q_tiles, do_tiles, place, values, tiles_of, bars, slot, phase):
    q_s, _, _, do_s, lse_s, delta_s = tiles_of
    _, full, empty = bars
    mbarrier.wait(empty.index(slot), phase)
    mbarrier.expect(full.index(slot), q_tiles.block_type.nbytes + do_tiles.block_type.nbytes)
    tma.async_copy_global_to_shared(q_tiles, place, full.index(slot), q_s.index(slot))
    tma.async_copy_global_to_shared(do_tiles, place, full.index(slot), do_s.index(slot))
    lse_s.index(slot).store(values[0])
    delta_s.index(slot).store(values[1])
    release(full.index(slot))


@gluon.jit
def _fetch_all(q_tiles, k_tiles, v_tiles, do_tiles, stats, tiles_of, bars, where, mask, UPPER: gl.constexpr, GROUPS: gl.constexpr, AHEAD: gl.constexpr):
    q_s, k_s, v_s, do_s, lse_s, delta_s = tiles_of
    own_full, full, empty = bars
    b, hk, n0, begin, count, group = where
    sq, edges, blocks = mask
    low, high, sk = edges
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[3]
    BLOCK_N: gl.constexpr = GROUPS * ROWS
    LANES: gl.constexpr = gl.BlockedLayout([BLOCK_M // 32], [32], [1], [0])
    table = blocks[0]
    for c in gl.static_range(GROUPS):
        mbarrier.expect(own_full.index(c), k_tiles.block_type.nbytes + v_tiles.block_type.nbytes)
        tma.async_copy_global_to_shared(k_tiles, [b, hk, n0 + c * ROWS, 0], own_full.index(c), k_s.index(c))
        tma.async_copy_global_to_shared(v_tiles, [b, hk, n0 + c * ROWS, 0], own_full.index(c), v_s.index(c))
    slot = 0
    phase = 1
    for member in range(group):
        h = hk * group + member
        start, stop = begin, count
        if blocks[0] is not None:
            start, _, _, stop, table = walk_of(n0, b, h, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER, QUERIES)
        for t in range(start, stop):
            m0 = position(t, table, stop, sq, blocks, blocks[3], BLOCK_M)
            values = _statistics(stats, member, sq, m0, BLOCK_M, LANES)
            _fetch_slot(q_tiles, do_tiles, [b, h, m0, 0], values, tiles_of, bars, slot, phase)
            slot, phase = following(slot, phase, STAGES)
    if AHEAD > 0:
        m0 = (sq + BLOCK_M - 1) // BLOCK_M * BLOCK_M
        values = _statistics(stats, group - 1, sq, m0, BLOCK_M, LANES)
        _fetch_slot(q_tiles, do_tiles, [b, hk * group, m0, 0], values, tiles_of, bars, slot, phase)


@gluon.jit
def _compute(c: gl.constexpr, tiles_of, bars, where, walk, mask, UPPER: gl.constexpr, GROUPS: gl.constexpr, AHEAD: gl.constexpr, OWN: gl.constexpr):
    q_s, k_s, v_s, do_s, lse_s, delta_s = tiles_of
    own_full, full, empty = bars
    b, hk, n0, begin, count, group = where
    dk_tiles, dv_tiles, scale, scale_log2 = walk
    sq, edges, blocks = mask
    low, high, sk = edges
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[3]
    BLOCK_D: gl.constexpr = q_s.shape[4]
    BLOCK_N: gl.constexpr = GROUPS * ROWS
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)
    COLUMN: gl.constexpr = gl.SliceLayout(0, Z)

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
    mbarrier.wait(own_full.index(c), 0)
    keys, values = k, v
    if OWN:
        keys = k.load(gl.DotOperandLayout(0, Z, 2))
        values = v.load(gl.DotOperandLayout(0, Z, 2))
    slot = 0
    phase = 0
    dot = none
    if AHEAD > 0:
        mbarrier.wait(full.index(0), 0)
        dot = warpgroup_mma(keys, matrix(q_s.index(0)).permute([1, 0]), none, use_acc=False, is_async=True)
        dot = warpgroup_mma_wait(0, [dot])
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
                q = matrix(q_s.index(slot))
                do = matrix(do_s.index(slot))
                following_slot, following_phase = following(slot, phase, STAGES)
                if AHEAD == 1:
                    dp = warpgroup_mma(values, do.permute([1, 0]), none, use_acc=False, is_async=True)
                    lse2 = lse_s.index(slot).load(COLUMN)
                    mbarrier.wait(full.index(following_slot), following_phase)
                    q_next = matrix(q_s.index(following_slot))
                    dot_next = warpgroup_mma(keys, q_next.permute([1, 0]), none, use_acc=False, is_async=True)
                else:
                    mbarrier.wait(full.index(slot), phase)
                    dot = warpgroup_mma(keys, q.permute([1, 0]), none, use_acc=False, is_async=True)
                    dp = warpgroup_mma(values, do.permute([1, 0]), none, use_acc=False, is_async=True)
                    if GROUPS < 3:
                        lse2 = lse_s.index(slot).load(COLUMN)
                    dot = warpgroup_mma_wait(1, [dot])
                    if GROUPS == 3:
                        lse2 = lse_s.index(slot).load(COLUMN)
                p = gl.exp2(dot * scale_log2 - lse2[None, :])
                if part != FULL:
                    p = gl.where(visible(j, m0, edges, p, UPPER), p, 0.0)
                if GROUPS < 3:
                    delta = delta_s.index(slot).load(COLUMN)
                dv = warpgroup_mma(gl.convert_layout(p.to(q.dtype), WEIGHTS), do, dv, is_async=True)
                if AHEAD == 1:
                    dp = warpgroup_mma_wait(1, [dp])
                    dot = warpgroup_mma_wait(1, [dot_next])
                else:
                    dp = warpgroup_mma_wait(1, [dp])
                if GROUPS == 3:
                    delta = delta_s.index(slot).load(COLUMN)
                ds = p * (dp - delta[None, :])
                if part != FULL:
                    ds = gl.where(visible(j, m0, edges, p, UPPER), ds, 0.0)
                dk = warpgroup_mma(gl.convert_layout(ds.to(q.dtype), WEIGHTS), q, dk, is_async=True)
                dv = warpgroup_mma_wait(1, [dv])
                dk = warpgroup_mma_wait(0, [dk])
                release(empty.index(slot))
                slot, phase = following_slot, following_phase

    meet()
    k.store((dk * scale).to(k.dtype))
    v.store(dv.to(v.dtype))
    fence_async_shared()
    meet()
    tma.async_copy_shared_to_global(dk_tiles, [b, hk, n0, 0], k_s.index(c))
    tma.async_copy_shared_to_global(dv_tiles, [b, hk, n0, 0], v_s.index(c))
    tma.store_wait(0)
