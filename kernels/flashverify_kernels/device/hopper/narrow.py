from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flashverify_kernels.device.hopper.barriers import following, make_barriers, make_tiles, matrix, meet
from flashverify_kernels.device.hopper.rows import rows_of, store_rows
from flashverify_kernels.device.hopper.softmax import needs_mask, online_step
from flashverify_kernels.device.hopper.walk import keys_of, position

_UNSPECIALISED = ["lse2_ptr", "live_ptr", "scale_log2", "heads", "group", "sq", "sk", "low", "high"]
_UNSPECIALISED += ["live_batch", "live_head", "block_rows", "block_keys"]


@gluon.jit(do_not_specialize=_UNSPECIALISED, do_not_specialize_on_alignment=_UNSPECIALISED)
def hopper_narrow_forward_kernel(
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
    live_ptr,
    live_batch,
    live_head,
    block_rows,
    block_keys,
    UPPER: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Compute O and LSE of 64 queries, for heads so narrow that three programs share a multiprocessor and hide each other's waits.

    One program per (batch, query head, 64 queries), the longest walks first; four warps fetch and compute. Arguments as in
    `hopper_forward_kernel`, `block_rows` a multiple of 64. A slot of the rings holds the values of a tile and the keys
    of the next one, which are multiplied beside each other: one barrier says that both are there.
    """
    ROWS: gl.constexpr = q_tiles.block_type.shape[2]
    BLOCK_N: gl.constexpr = k_tiles.block_type.shape[2]
    BLOCK_D: gl.constexpr = k_tiles.block_type.shape[3]
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, Z)
    ACC_ROW: gl.constexpr = gl.SliceLayout(1, ACC)

    bh, b, h, m0, count, sure = rows_of(heads, sq, sk, high, ROWS, BLOCK_N, UPPER)
    blocks = (live_ptr, live_batch, live_head, block_rows, block_keys)
    first, table, end = 0, 0, count
    if low is not None or live_ptr is not None:
        first, count, table, end = keys_of(m0, b, h, sq, sk, low, high, blocks, ROWS, BLOCK_N, UPPER)
    where = (b, h // group, count, table, end, sk, blocks)

    q_s = make_tiles(q_tiles, 1)
    k_s = make_tiles(k_tiles, STAGES)
    v_s = make_tiles(v_tiles, STAGES)
    first_full = make_barriers(1, 1)
    full = make_barriers(STAGES, 1)
    fence_async_shared()
    mbarrier.expect(first_full.index(0), q_tiles.block_type.nbytes + k_tiles.block_type.nbytes)
    tma.async_copy_global_to_shared(q_tiles, [b, h, m0, 0], first_full.index(0), q_s.index(0))
    n0 = position(first, table, end, sk, blocks, block_keys, BLOCK_N)
    tma.async_copy_global_to_shared(k_tiles, [b, h // group, n0, 0], first_full.index(0), k_s.index(STAGES - 1))
    for slot in gl.static_range(STAGES - 1):
        places = _places(first + slot, where, BLOCK_N)
        _fetch_pair(k_tiles, v_tiles, where, places, first + slot, k_s, v_s, full, slot)

    i = m0 + gl.arange(0, ROWS, ROW)
    edges = (sk, low, high)
    q = matrix(q_s.index(0))
    none = gl.zeros([ROWS, BLOCK_N], gl.float32, Z)
    m_i = gl.full([ROWS], float("-inf"), gl.float32, ROW)
    l_i = gl.zeros([ROWS], gl.float32, ROW)
    acc = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
    mbarrier.wait(first_full.index(0), 0)
    k = matrix(k_s.index(STAGES - 1))
    dot = warpgroup_mma_wait(0, [warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)])
    masked = needs_mask(m0, n0, sure, low, ROWS, BLOCK_N)
    p, m_i, l_i, alpha = online_step(dot * scale_log2, i, n0, edges, masked, m_i, l_i, UPPER)
    p = gl.convert_layout(p.to(q.dtype), WEIGHTS)
    meet()
    places = _places(first + STAGES - 1, where, BLOCK_N)
    _fetch_pair(k_tiles, v_tiles, where, places, first + STAGES - 1, k_s, v_s, full, STAGES - 1)
    slot = 0
    phase = 0
    mbarrier.wait(full.index(0), 0)
    for t in range(first + 1, count):
        places = _places(t - 1 + STAGES, where, BLOCK_N)
        n0 = position(t, table, end, sk, blocks, block_keys, BLOCK_N)
        k = matrix(k_s.index(slot))
        dot = warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)
        acc = warpgroup_mma(p, matrix(v_s.index(slot)), acc, is_async=True)
        dot = warpgroup_mma_wait(1, [dot])
        masked = needs_mask(m0, n0, sure, low, ROWS, BLOCK_N)
        p, m_i, l_i, alpha = online_step(dot * scale_log2, i, n0, edges, masked, m_i, l_i, UPPER)
        p = gl.convert_layout(p.to(q.dtype), WEIGHTS)
        read = slot
        slot, phase = following(slot, phase, STAGES)
        # a branch: the assembler would move the next wait before the exponentials otherwise
        mbarrier.wait(full.index(slot), phase)
        acc = warpgroup_mma_wait(0, [acc])
        meet()
        _fetch_pair(k_tiles, v_tiles, where, places, t - 1 + STAGES, k_s, v_s, full, read)
        acc = acc * gl.convert_layout(alpha, ACC_ROW)[:, None]
    acc = warpgroup_mma_wait(0, [warpgroup_mma(p, matrix(v_s.index(slot)), acc, is_async=True)])

    store_rows(acc, m_i, l_i, q_s.index(0), o_tiles, [b, h, m0, 0], lse2_ptr + bh.to(gl.int64) * sq, i, sq)
    tma.store_wait(0)


@gluon.jit
def _places(t, where, BLOCK_N: gl.constexpr):
    """Where the keys of the tiles `t` and `t + 1` of the walk begin."""
    _, _, _, table, end, sk, blocks = where
    return (
        position(t, table, end, sk, blocks, blocks[4], BLOCK_N),
        position(t + 1, table, end, sk, blocks, blocks[4], BLOCK_N),
    )


@gluon.jit
def _fetch_pair(k_tiles, v_tiles, where, places, t, k_s, v_s, full, slot):
    """Start to fetch the values of tile `t` and the keys of the next one, which are 0 past the end; nothing from the end of the walk on."""
    b, hk, count, _, _, _, _ = where
    there = t < count
    mbarrier.expect(full.index(slot), k_tiles.block_type.nbytes + v_tiles.block_type.nbytes, there)
    tma.async_copy_global_to_shared(v_tiles, [b, hk, places[0], 0], full.index(slot), v_s.index(slot), there)
    tma.async_copy_global_to_shared(k_tiles, [b, hk, places[1], 0], full.index(slot), k_s.index(slot), there)
