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
    fetch,
    following,
    make_barriers,
    make_tiles,
    matrix,
    meet,
    release,
)
from flashverify_kernels.device.hopper.walk import walk_of, within
from flashverify_kernels.device.order import tile_of
from flashverify_kernels.device.schedule import FULL, LEADING, QUERIES, TRAILING

GROUPS = gl.constexpr(2)
ROWS = gl.constexpr(64)
"""Groups of four warps of a program, and keys of each."""
_UNSPECIALISED = ["lse2_ptr", "delta_ptr", "scale", "scale_log2", "heads", "group", "sq", "sk", "low", "high"]


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
        UPPER: whether there is such an edge.
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
    edges = (None, high, None)
    if low is not None:
        edges = (low, high, sk)
        begin, _, _, count = walk_of(n0, sq, sk, low, high, BLOCK_M, BLOCK_N, UPPER, QUERIES)

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
    where = (b, hk, n0, begin, count, group)
    row = (b.to(gl.int64) * heads + hk * group) * sq
    walk = (dk_tiles, dv_tiles, lse2_ptr + row, delta_ptr + row, scale, scale_log2, sq, edges)
    gl.warp_specialize(
        [
            (_compute, (0, tiles_of, full, empty, where, walk, UPPER, EVEN)),
            (_compute, (1, tiles_of, full, empty, where, walk, UPPER, EVEN)),
            (_fetch, (q_tiles, k_tiles, v_tiles, do_tiles, tiles_of, full, empty, where)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _fetch(q_tiles, k_tiles, v_tiles, do_tiles, tiles_of, full, empty, where):
    """Fetch the keys and values, then the tiles of Q and dO as slots become empty."""
    q_s, k_s, v_s, do_s = tiles_of
    q_full, k_full, v_full, do_full = full
    q_empty, do_empty = empty
    b, hk, n0, begin, count, group = where
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[3]
    for c in gl.static_range(GROUPS):
        fetch(k_tiles, [b, hk, n0 + c * ROWS, 0], k_s.index(c), k_full.index(c))
        fetch(v_tiles, [b, hk, n0 + c * ROWS, 0], v_s.index(c), v_full.index(c))
    slot = 0
    phase = 1
    for member in range(group):
        h = hk * group + member
        for t in range(begin, count):
            mbarrier.wait(q_empty.index(slot), phase)
            fetch(q_tiles, [b, h, t * BLOCK_M, 0], q_s.index(slot), q_full.index(slot))
            mbarrier.wait(do_empty.index(slot), phase)
            fetch(do_tiles, [b, h, t * BLOCK_M, 0], do_s.index(slot), do_full.index(slot))
            slot, phase = following(slot, phase, STAGES)


@gluon.jit
def _compute(c: gl.constexpr, tiles_of, full, empty, where, walk, UPPER: gl.constexpr, EVEN: gl.constexpr):
    """The keys of one group of warps. Tiles are kept transposed, so that P^T and dS^T stay in registers as left operands."""
    q_s, k_s, v_s, do_s = tiles_of
    q_full, k_full, v_full, do_full = full
    q_empty, do_empty = empty
    b, hk, n0, begin, count, group = where
    dk_tiles, dv_tiles, lse2_ptr, delta_ptr, scale, scale_log2, sq, edges = walk
    low, high, sk = edges
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[3]
    BLOCK_D: gl.constexpr = q_s.shape[4]
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)

    n0 += c * ROWS
    j = n0 + gl.arange(0, ROWS, gl.SliceLayout(1, Z))
    whole = begin
    if UPPER:  # from this tile on, every query sees every key
        whole = gl.minimum(gl.maximum((n0 + ROWS - 1 - high + BLOCK_M - 1) // BLOCK_M, begin), count)
    trailing = count
    if low is not None:
        _, whole, trailing, _ = walk_of(n0, sq, sk, low, high, BLOCK_M, ROWS, UPPER, QUERIES)
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
        first = member.to(gl.int64) * sq  # type: ignore[attr-defined]  # a tensor to the compiler
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
                i = t * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(0, Z))
                lse2 = _of_queries(lse2_head, i, sq, float("inf"), EVEN)  # padding has weights of 0
                delta = _of_queries(delta_head, i, sq, 0.0, EVEN)
                q = matrix(q_s.index(slot))
                do = matrix(do_s.index(slot))
                mbarrier.wait(q_full.index(slot), phase)
                dot = warpgroup_mma(k, q.permute([1, 0]), none, use_acc=False, is_async=True)
                mbarrier.wait(do_full.index(slot), phase)
                dp = warpgroup_mma(v, do.permute([1, 0]), none, use_acc=False, is_async=True)
                dot = warpgroup_mma_wait(1, [dot])
                p = gl.exp2(dot * scale_log2 - lse2[None, :])
                if part != FULL:
                    p = gl.where(_visible(j, t, edges, p, UPPER), p, 0.0)
                dv = warpgroup_mma(gl.convert_layout(p.to(q.dtype), WEIGHTS), do, dv, is_async=True)
                dp = warpgroup_mma_wait(1, [dp])
                ds = p * (dp - delta[None, :])
                if part != FULL:
                    ds = gl.where(_visible(j, t, edges, p, UPPER), ds, 0.0)
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
    tma.async_copy_shared_to_global(dk_tiles, [b, hk, n0, 0], k_s.index(c))
    tma.async_copy_shared_to_global(dv_tiles, [b, hk, n0, 0], v_s.index(c))
    tma.store_wait(0)


@gluon.jit
def _visible(j, t, edges, p, UPPER: gl.constexpr):
    """Which queries of tile `t` see the keys `j`, in the shape of P^T; the numbers within the tile are constants, which need no registers."""
    BLOCK_M: gl.constexpr = p.shape[1]
    low, high, _ = edges
    i = gl.arange(0, BLOCK_M, gl.SliceLayout(0, p.type.layout))[None, :]
    if low is None:
        see = (j - high - t * BLOCK_M)[:, None] <= i
    elif UPPER:
        see = ((j - high - t * BLOCK_M)[:, None] <= i) & (i <= (j - low - t * BLOCK_M)[:, None])
    else:
        see = i <= (j - low - t * BLOCK_M)[:, None]
    return see


@gluon.jit
def _of_queries(head_ptr, i, sq, fill, EVEN: gl.constexpr):
    """A statistic of the queries `i` of a head, `fill` from query `sq` on."""
    return gl.load(head_ptr + i) if EVEN else gl.load(head_ptr + i, mask=i < sq, other=fill)
