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
def trial_narrow_kernel(
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
    AHEAD: gl.constexpr,
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
    BLOCK_N: gl.constexpr = ROWS
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

    BLOCK_D: gl.constexpr = q_tiles.block_type.shape[3]
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)
    COLUMN: gl.constexpr = gl.SliceLayout(0, Z)
    LANES: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    k_s = make_tiles(k_tiles, 1)
    v_s = make_tiles(v_tiles, 1)
    q_s = make_tiles(q_tiles, STAGES)
    do_s = make_tiles(do_tiles, STAGES)
    ROW: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    lse_s = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], ROW)
    delta_s = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], ROW)
    own_full = make_barriers(1, 1)
    full = make_barriers(STAGES, 1)
    fence_async_shared()
    meet()
    row = (b.to(gl.int64) * heads + hk * group) * sq
    mbarrier.expect(own_full.index(0), k_tiles.block_type.nbytes + v_tiles.block_type.nbytes)
    tma.async_copy_global_to_shared(k_tiles, [b, hk, n0, 0], own_full.index(0), k_s.index(0))
    tma.async_copy_global_to_shared(v_tiles, [b, hk, n0, 0], own_full.index(0), v_s.index(0))
    tiles = count - begin
    total = group * tiles
    for n in gl.static_range(STAGES):
        there = n < total
        m0 = (begin + n % gl.maximum(tiles, 1)) * BLOCK_M
        h = hk * group + n // gl.maximum(tiles, 1)
        mbarrier.expect(full.index(n), q_tiles.block_type.nbytes + do_tiles.block_type.nbytes, there)
        tma.async_copy_global_to_shared(q_tiles, [b, h, m0, 0], full.index(n), q_s.index(n), there)
        tma.async_copy_global_to_shared(do_tiles, [b, h, m0, 0], full.index(n), do_s.index(n), there)
        i = m0 + gl.arange(0, BLOCK_M, LANES)
        at = row + (n // gl.maximum(tiles, 1)).to(gl.int64) * sq + i
        lse_s.index(n).store(gl.load(lse2_ptr + at, mask=(i < sq) & there, other=float("inf")))
        delta_s.index(n).store(gl.load(delta_ptr + at, mask=(i < sq) & there, other=0.0))
    meet()
    j = n0 + gl.arange(0, ROWS, gl.SliceLayout(1, Z))
    whole = begin
    if UPPER:
        whole = gl.minimum(gl.maximum((n0 + ROWS - 1 - high + BLOCK_M - 1) // BLOCK_M, begin), count)
    trailing = count
    if low is not None:
        _, whole, trailing, _, _ = walk_of(n0, b, hk, sq, sk, low, high, blocks, BLOCK_M, ROWS, UPPER, QUERIES)
        whole, trailing = within(begin, whole, trailing, count)
    k = matrix(k_s.index(0))
    v = matrix(v_s.index(0))
    none = gl.zeros([ROWS, BLOCK_M], gl.float32, Z)
    dk = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
    dv = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
    mbarrier.wait(own_full.index(0), 0)
    slot = 0
    phase = 0
    for member in range(group):
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
                m0 = t * BLOCK_M
                q = matrix(q_s.index(slot))
                do = matrix(do_s.index(slot))
                later = t + STAGES
                other = member
                while later >= count:
                    later = later - tiles
                    other = other + 1
                there = other < group
                far = gl.minimum(other, group - 1)
                i = later * BLOCK_M + gl.arange(0, BLOCK_M, LANES)
                at = row + far.to(gl.int64) * sq + i
                next_lse = gl.load(lse2_ptr + at, mask=(i < sq) & there, other=float("inf"))
                next_delta = gl.load(delta_ptr + at, mask=(i < sq) & there, other=0.0)
                mbarrier.wait(full.index(slot), phase)
                dot = warpgroup_mma(k, q.permute([1, 0]), none, use_acc=False, is_async=True)
                dp = warpgroup_mma(v, do.permute([1, 0]), none, use_acc=False, is_async=True)
                lse2 = lse_s.index(slot).load(COLUMN)
                dot = warpgroup_mma_wait(1, [dot])
                p = gl.exp2(dot * scale_log2 - lse2[None, :])
                if part != FULL:
                    p = gl.where(visible(j, m0, edges, p, UPPER), p, 0.0)
                delta = delta_s.index(slot).load(COLUMN)
                dv = warpgroup_mma(gl.convert_layout(p.to(q.dtype), WEIGHTS), do, dv, is_async=True)
                dp = warpgroup_mma_wait(1, [dp])
                ds = p * (dp - delta[None, :])
                if part != FULL:
                    ds = gl.where(visible(j, m0, edges, p, UPPER), ds, 0.0)
                dk = warpgroup_mma(gl.convert_layout(ds.to(q.dtype), WEIGHTS), q, dk, is_async=True)
                dv = warpgroup_mma_wait(1, [dv])
                dk = warpgroup_mma_wait(0, [dk])
                meet()
                mbarrier.expect(full.index(slot), q_tiles.block_type.nbytes + do_tiles.block_type.nbytes, there)
                place = [b, hk * group + far, later * BLOCK_M, 0]
                tma.async_copy_global_to_shared(q_tiles, place, full.index(slot), q_s.index(slot), there)
                tma.async_copy_global_to_shared(do_tiles, place, full.index(slot), do_s.index(slot), there)
                lse_s.index(slot).store(next_lse)
                delta_s.index(slot).store(next_delta)
                slot, phase = following(slot, phase, STAGES)

    meet()
    k.store((dk * scale).to(k.dtype))
    v.store(dv.to(v.dtype))
    fence_async_shared()
    meet()
    tma.async_copy_shared_to_global(dk_tiles, [b, hk, n0, 0], k_s.index(0))
    tma.async_copy_shared_to_global(dv_tiles, [b, hk, n0, 0], v_s.index(0))
    tma.store_wait(0)
