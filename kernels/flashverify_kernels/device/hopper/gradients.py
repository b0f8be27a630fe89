"""dK and dV of the keys of one group of warps: its walk over the tiles of queries, and the products of each."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from flashverify_kernels.device.hopper.barriers import following, matrix, meet, release
from flashverify_kernels.device.hopper.queries import ROWS, visible
from flashverify_kernels.device.hopper.ragged import place
from flashverify_kernels.device.hopper.walk import position, walk_of, within
from flashverify_kernels.device.schedule import FULL, LEADING, QUERIES, TRAILING


@gluon.jit
def gradients_of_keys(
    c: gl.constexpr,
    tiles_of,
    barriers,
    where,
    outputs,
    mask,
    UPPER: gl.constexpr,
    GROUPS: gl.constexpr,
    AHEAD: gl.constexpr,
):
    """The keys of group `c` of a program. Tiles are kept transposed, so that P^T and dS^T stay in registers as left operands.

    A tile of queries waits in its slot with its LSE and delta: both groups read them from shared memory, where no load keeps a product
    waiting. Where a group is a product ahead, its exponentials run beside dP of this tile and S of the next one.
    """
    q_s, k_s, v_s, do_s, lse2_s, delta_s = tiles_of
    own_full, full, empty = barriers
    b, hk, n0, begin, count, group, _q0, k0, cu_ptr = where
    dk_tiles, dv_tiles, scale, scale_log2 = outputs
    sq, edges, blocks = mask
    low, high, sk = edges
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[-2]
    BLOCK_D: gl.constexpr = q_s.shape[-1]
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
    slot = 0
    phase = 0
    dot = none
    if AHEAD:
        mbarrier.wait(full.index(0), 0)
        dot = warpgroup_mma(k, matrix(q_s.index(0)).permute([1, 0]), none, use_acc=False, is_async=True)
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
                next_slot, next_phase = following(slot, phase, STAGES)
                if AHEAD:
                    dp = warpgroup_mma(v, do.permute([1, 0]), none, use_acc=False, is_async=True)
                    lse2 = lse2_s.index(slot).load(COLUMN)
                    mbarrier.wait(full.index(next_slot), next_phase)
                    q_next = matrix(q_s.index(next_slot))
                    dot_next = warpgroup_mma(k, q_next.permute([1, 0]), none, use_acc=False, is_async=True)
                else:
                    mbarrier.wait(full.index(slot), phase)
                    dot = warpgroup_mma(k, q.permute([1, 0]), none, use_acc=False, is_async=True)
                    dp = warpgroup_mma(v, do.permute([1, 0]), none, use_acc=False, is_async=True)
                    lse2 = lse2_s.index(slot).load(COLUMN)
                    dot = warpgroup_mma_wait(1, [dot])
                p = gl.exp2(dot * scale_log2 - lse2[None, :])
                if part != FULL:
                    p = gl.where(visible(j, m0, edges, p, UPPER), p, 0.0)
                delta = delta_s.index(slot).load(COLUMN)
                dv = warpgroup_mma(gl.convert_layout(p.to(q.dtype), WEIGHTS), do, dv, is_async=True)
                if AHEAD:
                    dp = warpgroup_mma_wait(1, [dp])
                    dot = warpgroup_mma_wait(1, [dot_next])
                else:
                    dp = warpgroup_mma_wait(1, [dp])
                ds = p * (dp - delta[None, :])
                if part != FULL:
                    ds = gl.where(visible(j, m0, edges, p, UPPER), ds, 0.0)
                dk = warpgroup_mma(gl.convert_layout(ds.to(q.dtype), WEIGHTS), q, dk, is_async=True)
                dv = warpgroup_mma_wait(1, [dv])
                dk = warpgroup_mma_wait(0, [dk])
                release(empty.index(slot))
                slot, phase = next_slot, next_phase

    meet()
    k.store((dk * scale).to(k.dtype))
    v.store(dv.to(v.dtype))
    fence_async_shared()
    meet()
    tma.async_copy_shared_to_global(dk_tiles, place(cu_ptr, b, hk, n0, k0, sk), k_s.index(c))
    tma.async_copy_shared_to_global(dv_tiles, place(cu_ptr, b, hk, n0, k0, sk), v_s.index(c))
    tma.store_wait(0)
