from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
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
from flashverify_kernels.device.hopper.rows import rows_of, store_rows
from flashverify_kernels.device.hopper.softmax import online_step
from flashverify_kernels.device.hopper.walk import keys_of, walk_of, within
from flashverify_kernels.device.schedule import FULL, KEYS, LEADING, TRAILING

GROUPS = gl.constexpr(2)
ROWS = gl.constexpr(64)
"""Groups of four warps of a program, and queries of each."""
_UNSPECIALISED = ["lse2_ptr", "scale_log2", "heads", "group", "sq", "sk", "low", "high"]


@gluon.jit(do_not_specialize=_UNSPECIALISED, do_not_specialize_on_alignment=_UNSPECIALISED)
def hopper_forward_kernel(
    q_tiles,
    k_tiles,
    v_tiles,
    o_tiles,
    lse2_ptr,
    scale_log2,
    heads,
    group,
    sq,
    sk,
    low,
    high,
    UPPER: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Compute O and LSE of 128 queries: one program per (batch, query head, 128 queries), the longest walks first.

    Args:
        q_tiles: descriptor of Q `[B, heads, sq, D]`, tiles of 64 queries.
        k_tiles: descriptor of K `[B, heads / group, sk, D]`, tiles of keys.
        v_tiles: descriptor of V, likewise.
        o_tiles: descriptor of O, in the shape and the tiles of Q.
        lse2_ptr: LSE, log base 2, `[B, heads, sq]` fp32 contiguous.
        scale_log2: factor of a dot product, scale * log2(e).
        heads: query heads.
        group: query heads per kv head.
        sq: queries.
        sk: keys.
        low: query i sees the keys from i + low on; None: it sees the first.
        high: query i sees the keys up to i + high, where `UPPER`.
        UPPER: whether there is such an edge.
        STAGES: tiles of K and of V that are on their way or in use.
    """
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    BLOCK_N: gl.constexpr = k_tiles.block_type.shape[2]
    bh, b, h, m0, count, _ = rows_of(heads, sq, sk, high, BLOCK_M, BLOCK_N, UPPER)
    where = (b, h, m0, None, count)
    if low is not None:
        first, count = keys_of(m0, sq, sk, low, high, BLOCK_M, BLOCK_N, UPPER)
        where = (b, h, m0, first, count)

    q_s = make_tiles(q_tiles, GROUPS)
    k_s = make_tiles(k_tiles, STAGES)
    v_s = make_tiles(v_tiles, STAGES)
    q_full = make_barriers(GROUPS, 1)
    k_full = make_barriers(STAGES, 1)
    v_full = make_barriers(STAGES, 1)
    k_empty = make_barriers(STAGES, GROUPS)
    v_empty = make_barriers(STAGES, GROUPS)
    fence_async_shared()
    meet()
    tiles_of = (q_s, k_s, v_s)
    full = (q_full, k_full, v_full)
    empty = (k_empty, v_empty)
    walk = (o_tiles, lse2_ptr + bh.to(gl.int64) * sq, scale_log2, sq, sk, low, high)
    gl.warp_specialize(
        [
            (_compute, (0, tiles_of, full, empty, where, walk, UPPER)),
            (_compute, (1, tiles_of, full, empty, where, walk, UPPER)),
            (_fetch, (q_tiles, k_tiles, v_tiles, tiles_of, full, empty, where, h // group)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _fetch(q_tiles, k_tiles, v_tiles, tiles_of, full, empty, where, hk):
    """Fetch the queries, then the tiles of keys and values as slots become empty."""
    q_s, k_s, v_s = tiles_of
    q_full, k_full, v_full = full
    k_empty, v_empty = empty
    b, h, m0, first, count = where
    STAGES: gl.constexpr = k_s.shape[0]
    BLOCK_N: gl.constexpr = k_s.shape[3]
    for c in gl.static_range(GROUPS):
        fetch(q_tiles, [b, h, m0 + c * ROWS, 0], q_s.index(c), q_full.index(c))
    slot = 0
    phase = 1
    for t in range(0 if first is None else first, count):
        mbarrier.wait(k_empty.index(slot), phase)
        fetch(k_tiles, [b, hk, t * BLOCK_N, 0], k_s.index(slot), k_full.index(slot))
        mbarrier.wait(v_empty.index(slot), phase)
        fetch(v_tiles, [b, hk, t * BLOCK_N, 0], v_s.index(slot), v_full.index(slot))
        slot, phase = following(slot, phase, STAGES)


@gluon.jit
def _compute(c: gl.constexpr, tiles_of, full, empty, where, walk, UPPER: gl.constexpr):
    """The rows of one group of warps. The product of the weights and values of a tile runs beside the softmax of the next tile."""
    q_s, k_s, v_s = tiles_of
    q_full, k_full, v_full = full
    k_empty, v_empty = empty
    b, h, m0, first, count = where
    o_tiles, lse2_ptr, scale_log2, sq, sk, low, high = walk
    STAGES: gl.constexpr = k_s.shape[0]
    BLOCK_N: gl.constexpr = k_s.shape[3]
    BLOCK_D: gl.constexpr = k_s.shape[4]
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, Z)
    ACC_ROW: gl.constexpr = gl.SliceLayout(1, ACC)

    i = m0 + c * ROWS + gl.arange(0, ROWS, ROW)
    edges = (sk, low, high)
    sure = sk
    if UPPER:
        sure = gl.maximum(gl.minimum(m0 + c * ROWS + 1 + high, sk), 0)
    first = 0 if first is None else first
    leading = first + 1
    whole = sure // BLOCK_N
    if low is not None:
        _, leading, whole, _ = walk_of(m0 + c * ROWS, sq, sk, low, high, ROWS, BLOCK_N, UPPER, KEYS)
        leading, whole = within(first + 1, leading, whole, count)
    q = matrix(q_s.index(c))
    none = gl.zeros([ROWS, BLOCK_N], gl.float32, Z)
    m_i = gl.full([ROWS], float("-inf"), gl.float32, ROW)
    l_i = gl.zeros([ROWS], gl.float32, ROW)
    acc = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)

    mbarrier.wait(q_full.index(c), 0)
    mbarrier.wait(k_full.index(0), 0)
    k = matrix(k_s.index(0))
    dot = warpgroup_mma_wait(0, [warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)])
    release(k_empty.index(0))
    p, m_i, l_i, alpha = online_step(dot * scale_log2, i, first * BLOCK_N, edges, m_i, l_i, UPPER, True)
    p = gl.convert_layout(p.to(q.dtype), WEIGHTS)
    k_slot, k_phase = following(0, 0, STAGES)
    v_slot = 0
    v_phase = 0
    for part in gl.static_range(FULL if low is None else LEADING, TRAILING + 1):
        if part == LEADING:
            start, stop = first + 1, leading
        elif part == FULL:
            start, stop = leading, whole
        else:
            start, stop = gl.maximum(whole, 1), count
        for t in range(start, stop):
            mbarrier.wait(k_full.index(k_slot), k_phase)
            k = matrix(k_s.index(k_slot))
            dot = warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(v_slot), v_phase)
            acc = warpgroup_mma(p, matrix(v_s.index(v_slot)), acc, is_async=True)
            dot = warpgroup_mma_wait(1, [dot])
            release(k_empty.index(k_slot))
            p, m_i, l_i, alpha = online_step(dot * scale_log2, i, t * BLOCK_N, edges, m_i, l_i, UPPER, part != FULL)
            p = gl.convert_layout(p.to(q.dtype), WEIGHTS)
            k_slot, k_phase = following(k_slot, k_phase, STAGES)
            # a branch: the assembler would move the next wait before the exponentials otherwise
            mbarrier.wait(k_full.index(k_slot), k_phase, t + 1 < count)
            acc = warpgroup_mma_wait(0, [acc])
            release(v_empty.index(v_slot))
            acc = acc * gl.convert_layout(alpha, ACC_ROW)[:, None]
            v_slot, v_phase = following(v_slot, v_phase, STAGES)
    mbarrier.wait(v_full.index(v_slot), v_phase)
    acc = warpgroup_mma_wait(0, [warpgroup_mma(p, matrix(v_s.index(v_slot)), acc, is_async=True)])

    store_rows(acc, m_i, l_i, q_s.index(c), o_tiles, [b, h, m0 + c * ROWS, 0], lse2_ptr, i, sq)
