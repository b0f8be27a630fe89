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
from flashverify_kernels.device.hopper.ragged import place
from flashverify_kernels.device.hopper.rows import store_rows
from flashverify_kernels.device.hopper.softmax import online_step
from flashverify_kernels.device.hopper.walk import position
from flashverify_kernels.device.hopper.walks_of_rows import (
    GROUPS,
    ROWS,
    first_row,
    tile_at,
    tiles_of_program,
    walk_of_group,
    walk_of_tile,
)
from flashverify_kernels.device.schedule import FULL, LEADING, TRAILING

_UNSPECIALISED = ["lse2_ptr", "live_ptr", "scale_log2", "batch", "heads", "group", "sq", "sk", "low", "high"]
_UNSPECIALISED += ["live_batch", "live_head", "block_rows", "block_keys"]
_UNSPECIALISED += ["cu_q_ptr", "cu_k_ptr", "packed", "halvings", "rows", "align_end"]


@gluon.jit(do_not_specialize=_UNSPECIALISED, do_not_specialize_on_alignment=_UNSPECIALISED)
def hopper_forward_kernel(
    q_tiles,
    k_tiles,
    v_tiles,
    o_tiles,
    lse2_ptr,
    scale_log2,
    batch,
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
    PAIRED: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Compute O and LSE, 128 queries after the other: any number of programs share the tiles of queries, see `order`.

    What is fetched for the next tile of queries arrives while this one is computed and stored.

    Args:
        q_tiles: descriptor of Q `[batch, heads, sq, D]`, tiles of 64 queries.
        k_tiles: descriptor of K `[batch, heads / group, sk, D]`, tiles of keys.
        v_tiles: descriptor of V, likewise.
        o_tiles: descriptor of O, in the shape and the tiles of Q.
        lse2_ptr: LSE, log base 2, `[batch, heads, sq]` fp32 contiguous.
        scale_log2: factor of a dot product, scale * log2(e).
        batch: sequences.
        heads: query heads.
        group: query heads per kv head.
        sq: queries.
        sk: keys.
        low: query i sees the keys from i + low on; None: it sees the first.
        high: query i sees the keys up to i + high, where `UPPER`.
        live_ptr: the tables of the live blocks along the keys, see `schedule`; None: there is no pattern, and no number of it.
        live_batch: step of the tables.
        live_head: likewise.
        block_rows: queries per block, a multiple of 128.
        block_keys: keys per block, a multiple of those of a tile.
        cu_q_ptr: where the queries of packed sequences begin; None: there are none, and no number of them. Then descriptors and LSE are those
            of `[1, heads, rows, D]`, and `low` and `high` are those of sequences with as many queries as keys.
        cu_k_ptr: where their keys begin.
        packed: number of sequences.
        halvings: see `device.order`.
        rows: queries of all sequences.
        align_end: 1 if the edges start at the last key, 0 if at the first.
        UPPER: whether there is an upper edge.
        PAIRED: whether tiles of queries are shared in pairs, see `order`.
        STAGES: tiles of K and of V that are on their way or in use.
    """
    q_s = make_tiles(q_tiles, 2 * GROUPS)
    k_s = make_tiles(k_tiles, STAGES)
    v_s = make_tiles(v_tiles, STAGES)
    q_full = make_barriers(2 * GROUPS, 1)
    q_empty = make_barriers(2 * GROUPS, 1)
    k_full = make_barriers(STAGES, 1)
    v_full = make_barriers(STAGES, 1)
    k_empty = make_barriers(STAGES, GROUPS)
    v_empty = make_barriers(STAGES, GROUPS)
    fence_async_shared()
    meet()
    tiles_of = (q_s, k_s, v_s)
    full = (q_full, k_full, v_full)
    empty = (q_empty, k_empty, v_empty)
    sizes = (batch, heads, group, sq, sk, low, high)
    blocks = (live_ptr, live_batch, live_head, block_rows, block_keys)
    sequences = (cu_q_ptr, cu_k_ptr, packed, halvings, rows, align_end)
    results = (o_tiles, lse2_ptr, scale_log2)
    gl.warp_specialize(
        [
            (_compute, (0, tiles_of, full, empty, sizes, blocks, sequences, results, UPPER, PAIRED)),
            (_compute, (1, tiles_of, full, empty, sizes, blocks, sequences, results, UPPER, PAIRED)),
            (_fetch, (q_tiles, k_tiles, v_tiles, tiles_of, full, empty, sizes, blocks, sequences, UPPER, PAIRED)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _fetch(
    q_tiles,
    k_tiles,
    v_tiles,
    tiles_of,
    full,
    empty,
    sizes,
    blocks,
    sequences,
    UPPER: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """Fetch the queries of each tile of this program, and the tiles of keys and values, as slots become empty."""
    q_s, k_s, v_s = tiles_of
    q_full, k_full, v_full = full
    q_empty, k_empty, v_empty = empty
    batch, heads, group, _, _, low, high = sizes
    STAGES: gl.constexpr = k_s.shape[0]
    BLOCK_N: gl.constexpr = k_s.shape[-2]
    count, paired = tiles_of_program(sizes, blocks, sequences, PAIRED)
    slot = 0
    phase = 1
    for n in range(count):
        b, h, m0, q0, sq, k0, sk, shift = tile_at(n, paired, sizes, blocks, sequences, UPPER, PAIRED)
        own_sizes = (batch, heads, group, sq, sk, low, high + shift)
        if low is not None:
            own_sizes = (batch, heads, group, sq, sk, low + shift, high + shift)
        hk = h // group
        first, stop, table, end = walk_of_tile(b, h, m0, own_sizes, blocks, BLOCK_N, UPPER)
        for t in range(first, stop):
            n0 = position(t, table, end, sk, blocks, blocks[4], BLOCK_N)
            mbarrier.wait(k_empty.index(slot), phase)
            fetch(k_tiles, place(sequences[0], b, hk, n0, k0, sk), k_s.index(slot), k_full.index(slot))
            if t == first:
                for c in gl.static_range(GROUPS):
                    own = n % 2 * GROUPS + c
                    mbarrier.wait(q_empty.index(own), (n + 1) // 2 % 2 ^ 1)
                    fetch(q_tiles, place(sequences[0], b, h, m0 + c * ROWS, q0, sq), q_s.index(own), q_full.index(own))
            mbarrier.wait(v_empty.index(slot), phase)
            fetch(v_tiles, place(sequences[0], b, hk, n0, k0, sk), v_s.index(slot), v_full.index(slot))
            slot, phase = following(slot, phase, STAGES)


@gluon.jit
def _compute(
    c: gl.constexpr,
    tiles_of,
    full,
    empty,
    sizes,
    blocks,
    sequences,
    results,
    UPPER: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """The rows of one group of warps. The product of the weights and values of a tile runs beside the softmax of the next tile."""
    q_s, k_s, v_s = tiles_of
    q_full, k_full, v_full = full
    q_empty, k_empty, v_empty = empty
    batch, heads, group, _, _, low, high = sizes
    o_tiles, lse2_ptr, scale_log2 = results
    STAGES: gl.constexpr = k_s.shape[0]
    BLOCK_N: gl.constexpr = k_s.shape[-2]
    BLOCK_D: gl.constexpr = k_s.shape[-1]
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, Z)
    ACC_ROW: gl.constexpr = gl.SliceLayout(1, ACC)

    none = gl.zeros([ROWS, BLOCK_N], gl.float32, Z)
    count, paired = tiles_of_program(sizes, blocks, sequences, PAIRED)
    slot = 0
    phase = 0
    for n in range(count):
        b, h, m0, q0, sq, _k0, sk, shift = tile_at(n, paired, sizes, blocks, sequences, UPPER, PAIRED)
        own_sizes = (batch, heads, group, sq, sk, low, high + shift)
        if low is not None:
            own_sizes = (batch, heads, group, sq, sk, low + shift, high + shift)
        first, leading, whole, stop, table, end = walk_of_group(c, b, h, m0, own_sizes, blocks, BLOCK_N, UPPER)
        _, _, _, _, _, own_low, own_high = own_sizes
        edges = (sk, own_low, own_high)
        m0 += c * ROWS
        own = n % 2 * GROUPS + c
        i = m0 + gl.arange(0, ROWS, ROW)
        q = matrix(q_s.index(own))
        m_i = gl.full([ROWS], float("-inf"), gl.float32, ROW)
        l_i = gl.zeros([ROWS], gl.float32, ROW)
        acc = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)

        mbarrier.wait(k_full.index(slot), phase)
        mbarrier.wait(q_full.index(own), n // 2 % 2)
        k = matrix(k_s.index(slot))
        dot = warpgroup_mma_wait(0, [warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)])
        release(k_empty.index(slot))
        n0 = position(first, table, end, sk, blocks, blocks[4], BLOCK_N)
        p, m_i, l_i, alpha = online_step(dot * scale_log2, i, n0, edges, m_i, l_i, UPPER, True)
        p = gl.convert_layout(p.to(q.dtype), WEIGHTS)
        tma.store_wait(0)  # of the tile before, which has left its queries' place
        release(q_empty.index(own ^ GROUPS))
        k_slot, k_phase = following(slot, phase, STAGES)
        for part in gl.static_range(FULL if low is None else LEADING, TRAILING + 1):
            if part == LEADING:
                start, last = first + 1, leading
            elif part == FULL:
                start, last = leading, whole
            else:
                start, last = gl.maximum(whole, 1), stop
            for t in range(start, last):
                mbarrier.wait(k_full.index(k_slot), k_phase)
                k = matrix(k_s.index(k_slot))
                dot = warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)
                mbarrier.wait(v_full.index(slot), phase)
                acc = warpgroup_mma(p, matrix(v_s.index(slot)), acc, is_async=True)
                dot = warpgroup_mma_wait(1, [dot])
                release(k_empty.index(k_slot))
                n0 = t * BLOCK_N
                if part != FULL:
                    n0 = position(t, table, end, sk, blocks, blocks[4], BLOCK_N)
                p, m_i, l_i, alpha = online_step(dot * scale_log2, i, n0, edges, m_i, l_i, UPPER, part != FULL)
                p = gl.convert_layout(p.to(q.dtype), WEIGHTS)
                k_slot, k_phase = following(k_slot, k_phase, STAGES)
                # a branch: the assembler would move the next wait before the exponentials otherwise
                mbarrier.wait(k_full.index(k_slot), k_phase, t + 1 < stop)
                acc = warpgroup_mma_wait(0, [acc])
                release(v_empty.index(slot))
                acc = acc * gl.convert_layout(alpha, ACC_ROW)[:, None]
                slot, phase = following(slot, phase, STAGES)
        mbarrier.wait(v_full.index(slot), phase)
        acc = warpgroup_mma_wait(0, [warpgroup_mma(p, matrix(v_s.index(slot)), acc, is_async=True)])
        release(v_empty.index(slot))
        slot, phase = following(slot, phase, STAGES)

        lse2_head = lse2_ptr + first_row(b, h, q0, own_sizes, sequences)
        store_rows(acc, m_i, l_i, q_s.index(own), o_tiles, place(sequences[0], b, h, m0, q0, sq), lse2_head, i, sq)
    tma.store_wait(0)
