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
from flashverify_kernels.device.schedule import FULL, LEADING

ROWS = gl.constexpr(64)


@gluon.jit
def compute(
    c: gl.constexpr,
    tiles_of,
    full,
    empty,
    where,
    walk,
    CAUSAL: gl.constexpr,
    PRODUCT: gl.constexpr,
    ADDED: gl.constexpr,
):
    """The keys of one group of warps: dK and dV, and its half of the channels of dQ over the keys of both groups.

    dS has two places in shared memory: whoever passes the barrier of one tile knows that the product of the tile before is over in both
    groups. delta is loaded behind the exponentials, where fewer values are alive.
    """
    q_s, k_s, v_s, do_s, ds_s, dq_s = tiles_of
    q_full, k_full, v_full, do_full, ds_full, dq_full = full
    q_empty, do_empty, dq_empty = empty
    b, hk, n0, begin, count, group = where
    dk_tiles, dv_tiles, lse2_ptr, delta_ptr, scale, scale_log2, sq = walk
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[3]
    BLOCK_D: gl.constexpr = q_s.shape[4]
    HALF: gl.constexpr = dq_s.shape[4]
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    DQ: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)

    n0 += c * ROWS
    j = n0 + gl.arange(0, ROWS, gl.SliceLayout(1, Z))
    whole = begin
    if CAUSAL:  # from this tile on, every query sees every key
        whole = gl.minimum(gl.maximum((n0 + ROWS - 1 + BLOCK_M - 1) // BLOCK_M, begin), count)
    k = matrix(k_s.index(c))
    v = matrix(v_s.index(c))
    none = gl.zeros([ROWS, BLOCK_M], gl.float32, Z)
    zero = gl.zeros([BLOCK_M, HALF], gl.float32, DQ)
    dk = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
    dv = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
    mbarrier.wait(k_full.index(c), 0)
    mbarrier.wait(v_full.index(c), 0)
    mbarrier.wait(k_full.index(1 - c), 0)
    slot = 0
    phase = 0
    place = 0
    place_phase = 0
    dq_phase = 1
    for member in range(group):
        first = member.to(gl.int64) * sq  # type: ignore[attr-defined]  # a tensor to the compiler
        lse2_head = gl.multiple_of(lse2_ptr + first, 16)
        delta_head = gl.multiple_of(delta_ptr + first, 16)
        for part in gl.static_range(LEADING if CAUSAL else FULL, FULL + 1):
            if part == FULL:
                start, stop = whole, count
            else:
                start, stop = begin, whole
            for t in range(start, stop):
                i = t * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(0, Z))
                lse2 = gl.load(lse2_head + i)
                q = matrix(q_s.index(slot))
                do = matrix(do_s.index(slot))
                mbarrier.wait(q_full.index(slot), phase)
                dot = warpgroup_mma(k, q.permute([1, 0]), none, use_acc=False, is_async=True)
                mbarrier.wait(do_full.index(slot), phase)
                dp = warpgroup_mma(v, do.permute([1, 0]), none, use_acc=False, is_async=True)
                dot = warpgroup_mma_wait(1, [dot])
                p = gl.exp2(dot * scale_log2 - lse2[None, :])
                if part != FULL:
                    p = gl.where(_visible(j, t, p), p, 0.0)
                dv = warpgroup_mma(gl.convert_layout(p.to(q.dtype), WEIGHTS), do, dv, is_async=True)
                delta = gl.load(delta_head + i)
                dp = warpgroup_mma_wait(1, [dp])
                ds = p * (dp - delta[None, :])
                if part != FULL:
                    ds = gl.where(_visible(j, t, p), ds, 0.0)
                ds = ds.to(q.dtype)
                if PRODUCT:
                    matrix(ds_s.index(place * 2 + c)).store(ds)
                    fence_async_shared()
                    release(ds_full.index(place))
                dk = warpgroup_mma(gl.convert_layout(ds, WEIGHTS), q, dk, is_async=True)
                dv = warpgroup_mma_wait(1, [dv])
                release(do_empty.index(slot))
                if PRODUCT:
                    mbarrier.wait(ds_full.index(place), place_phase)
                    dq = zero
                    for g in gl.static_range(2):
                        left = matrix(ds_s.index(place * 2 + g)).permute([1, 0])
                        right = matrix(k_s.index(g)).slice(c * HALF, HALF, 1)
                        dq = warpgroup_mma(left, right, dq, use_acc=g > 0, is_async=True)
                    dk = warpgroup_mma_wait(2, [dk])
                    release(q_empty.index(slot))
                    dq = warpgroup_mma_wait(0, [dq])
                    mbarrier.wait(dq_empty.index(0), dq_phase, ADDED)
                    matrix(dq_s.index(c)).store(dq)
                    fence_async_shared()
                    release(dq_full.index(0))
                    dq_phase ^= 1
                    place, place_phase = following(place, place_phase, 2)
                else:
                    dk = warpgroup_mma_wait(0, [dk])
                    release(q_empty.index(slot))
                slot, phase = following(slot, phase, STAGES)

    # the other group reads these keys until its last tile of dQ is taken
    mbarrier.wait(dq_empty.index(0), dq_phase, ADDED)
    meet()
    k.store((dk * scale).to(k.dtype))
    v.store(dv.to(v.dtype))
    fence_async_shared()
    meet()
    tma.async_copy_shared_to_global(dk_tiles, [b, hk, n0, 0], k_s.index(c))
    tma.async_copy_shared_to_global(dv_tiles, [b, hk, n0, 0], v_s.index(c))
    tma.store_wait(0)


@gluon.jit
def _visible(j, t, p):
    """Which queries of tile `t` see the keys `j`, in the shape of P^T."""
    BLOCK_M: gl.constexpr = p.shape[1]
    i = gl.arange(0, BLOCK_M, gl.SliceLayout(0, p.type.layout))[None, :]
    return (j - t * BLOCK_M)[:, None] <= i
