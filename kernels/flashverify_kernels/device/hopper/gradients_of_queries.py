"""dQ of the queries of one group of warps: its walk over the tiles of keys, and the products of each."""

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
    matrix,
    meet,
    pass_by,
    release,
)
from flashverify_kernels.device.hopper.ragged import place
from flashverify_kernels.device.hopper.softmax import seen
from flashverify_kernels.device.hopper.walk import position, walk_of, within
from flashverify_kernels.device.hopper.walks_of_rows import (
    GROUPS,
    ROWS,
    first_row,
    tile_at,
    tiles_of_program,
    walk_of_group,
)
from flashverify_kernels.device.schedule import FULL, KEYS, LEADING, TRAILING


@gluon.jit
def gradients_of_queries(
    c: gl.constexpr,
    tiles_of,
    full,
    empty,
    sizes,
    blocks,
    sequences,
    of_rows,
    UPPER: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """The rows of one group of warps. The product of dS and the keys of a tile runs beside the weights of the next tile."""
    q_s, k_s, v_s, do_s = tiles_of
    q_full, k_full, v_full, do_full = full
    q_empty, k_empty, v_empty = empty
    batch, heads, group, _, _, low, high = sizes
    dq_tiles, lse2_ptr, delta_ptr, scale, scale_log2 = of_rows
    K_STAGES: gl.constexpr = k_s.shape[0]
    V_STAGES: gl.constexpr = v_s.shape[0]
    BLOCK_N: gl.constexpr = k_s.shape[-2]
    BLOCK_D: gl.constexpr = k_s.shape[-1]
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, Z)

    none = gl.zeros([ROWS, BLOCK_N], gl.float32, Z)
    count, paired = tiles_of_program(sizes, blocks, sequences, PAIRED)
    k_slot = 0
    k_phase = 0
    v_slot = 0
    v_phase = 0
    for n in range(count):
        b, h, m0, q0, sq, _k0, sk, shift = tile_at(n, paired, sizes, blocks, sequences, UPPER, PAIRED)
        own_sizes = (batch, heads, group, sq, sk, low, high + shift)
        if low is not None:
            own_sizes = (batch, heads, group, sq, sk, low + shift, high + shift)
        _, _, _, _, _, own_low, own_high = own_sizes
        edges = (sk, own_low, own_high)
        i = m0 + c * ROWS + gl.arange(0, ROWS, ROW)
        row = first_row(b, h, q0, own_sizes, sequences)
        lse2 = gl.load(lse2_ptr + row + i, mask=i < sq, other=float("inf"))  # padding has weights of 0
        delta = gl.load(delta_ptr + row + i, mask=i < sq, other=0.0)
        first, leading, whole, stop, table, end = walk_of_group(c, b, h, m0, own_sizes, blocks, BLOCK_N, UPPER)
        begin, last_of_own = first, stop
        if low is not None or UPPER:  # tiles that the other group sees alone
            begin, _, _, own_stop, _table = walk_of(
                m0 + c * ROWS, b, h, sq, sk, own_low, own_high, blocks, ROWS, BLOCK_N, UPPER, KEYS
            )
            begin = gl.maximum(gl.minimum(begin, stop - 1), first)
            for _t in range(first, begin):
                k_slot, k_phase = pass_by(k_slot, k_phase, k_full, k_empty)
                v_slot, v_phase = pass_by(v_slot, v_phase, v_full, v_empty)
            last_of_own = gl.minimum(gl.maximum(own_stop, begin + 1), stop)
        leading, whole = within(begin + 1, leading, whole, last_of_own)
        own = n % 2 * GROUPS + c
        q = matrix(q_s.index(own))
        do = matrix(do_s.index(own))
        dq = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)

        mbarrier.wait(k_full.index(k_slot), k_phase)
        mbarrier.wait(q_full.index(own), n // 2 % 2)
        k = matrix(k_s.index(k_slot))
        dot = warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(v_slot), v_phase)
        mbarrier.wait(do_full.index(own), n // 2 % 2)
        v = matrix(v_s.index(v_slot))
        dp = warpgroup_mma(do, v.permute([1, 0]), none, use_acc=False, is_async=True)
        dot = warpgroup_mma_wait(1, [dot])
        n0 = position(begin, table, end, sk, blocks, blocks[4], BLOCK_N)
        see = seen(i, n0, edges, dot, UPPER)
        p = gl.where(see, gl.exp2(dot * scale_log2 - lse2[:, None]), 0.0)
        dp = warpgroup_mma_wait(0, [dp])
        release(v_empty.index(v_slot))
        v_slot, v_phase = following(v_slot, v_phase, V_STAGES)
        ds = gl.where(see, p * (dp - delta[:, None]), 0.0)
        ds = gl.convert_layout(ds.to(q.dtype), WEIGHTS)
        tma.store_wait(0)  # of the tile before, which has left its queries' place
        release(q_empty.index(own ^ GROUPS))
        for part in gl.static_range(FULL if low is None else LEADING, TRAILING + 1):
            if part == LEADING:
                start, last = begin + 1, leading
            elif part == FULL:
                start, last = leading, whole
            else:
                start, last = whole, last_of_own
            for t in range(start, last):
                before = k_slot
                k_slot, k_phase = following(k_slot, k_phase, K_STAGES)
                mbarrier.wait(k_full.index(k_slot), k_phase)
                k = matrix(k_s.index(k_slot))
                dot = warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)
                mbarrier.wait(v_full.index(v_slot), v_phase)
                v = matrix(v_s.index(v_slot))
                dp = warpgroup_mma(do, v.permute([1, 0]), none, use_acc=False, is_async=True)
                dq = warpgroup_mma(ds, matrix(k_s.index(before)), dq, is_async=True)
                dot = warpgroup_mma_wait(2, [dot])
                p = gl.exp2(dot * scale_log2 - lse2[:, None])
                if part != FULL:
                    n0 = position(t, table, end, sk, blocks, blocks[4], BLOCK_N)
                    p = gl.where(seen(i, n0, edges, dot, UPPER), p, 0.0)
                dp = warpgroup_mma_wait(1, [dp])
                release(v_empty.index(v_slot))
                v_slot, v_phase = following(v_slot, v_phase, V_STAGES)
                ds = p * (dp - delta[:, None])
                if part != FULL:
                    ds = gl.where(seen(i, n0, edges, dot, UPPER), ds, 0.0)
                dq = warpgroup_mma_wait(0, [dq])
                release(k_empty.index(before))
                ds = gl.convert_layout(ds.to(q.dtype), WEIGHTS)
        dq = warpgroup_mma_wait(0, [warpgroup_mma(ds, matrix(k_s.index(k_slot)), dq, is_async=True)])
        release(k_empty.index(k_slot))
        k_slot, k_phase = following(k_slot, k_phase, K_STAGES)
        for _t in range(last_of_own, stop):
            k_slot, k_phase = pass_by(k_slot, k_phase, k_full, k_empty)
            v_slot, v_phase = pass_by(v_slot, v_phase, v_full, v_empty)

        meet()
        q.store((dq * scale).to(q.dtype))
        fence_async_shared()
        meet()
        tma.async_copy_shared_to_global(dq_tiles, place(sequences[0], b, h, m0 + c * ROWS, q0, sq), q_s.index(own))
    tma.store_wait(0)
