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
from flashverify_kernels.device.hopper.keys import fetch_queries_and_keys
from flashverify_kernels.device.hopper.ragged import place
from flashverify_kernels.device.hopper.rows import store_rows, sure_of
from flashverify_kernels.device.hopper.softmax import needs_mask, online_step
from flashverify_kernels.device.hopper.told import key_of, make_words, walk_once
from flashverify_kernels.device.hopper.walks_of_rows import GROUPS, ROWS, share, tile_at

PLACES = gl.constexpr(3)
"""Tiles of queries in shared memory: one is computed, one arrives, and the results of one leave from its place.

Beyond 128 channels there is room for one alone, and a program computes no other.
"""
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
    """Compute O and LSE, 128 queries after the other: any number of programs, each of which has a tile, share the tiles of queries, see `order`.

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
            of `[1, heads, rows, D]`, and `low` and `high` are those of sequences with as many queries as keys. A program has one tile.
        cu_k_ptr: where their keys begin.
        packed: number of sequences.
        halvings: see `device.order`.
        rows: queries of all sequences.
        align_end: 1 if the edges start at the last key, 0 if at the first.
        UPPER: whether there is an upper edge.
        PAIRED: whether tiles of queries are shared in pairs, see `order`.
        STAGES: tiles of K and of V that are on their way or in use.
    """
    places: gl.constexpr = PLACES if q_tiles.block_type.shape[-1] <= 128 else 1
    q_s = make_tiles(q_tiles, places * GROUPS)
    words = make_words(places)
    k_s = make_tiles(k_tiles, STAGES)
    v_s = make_tiles(v_tiles, STAGES)
    q_full = make_barriers(places * GROUPS, 1)
    q_empty = make_barriers(places * GROUPS, 1)
    k_full = make_barriers(STAGES, 1)
    v_full = make_barriers(STAGES, 1)
    k_empty = make_barriers(STAGES, GROUPS)
    v_empty = make_barriers(STAGES, GROUPS)
    fence_async_shared()
    meet()
    tiles_of = (q_s, k_s, v_s, words)
    full = (q_full, k_full, v_full)
    empty = (q_empty, k_empty, v_empty)
    sizes = (batch, heads, group, sq, sk, low, high)
    blocks = (live_ptr, live_batch, live_head, block_rows, block_keys)
    only = (None, 0, 0, 0, 0, 0)
    if cu_q_ptr is not None:
        sequences = (cu_q_ptr, cu_k_ptr, packed, halvings, rows, align_end)
        _b, h, m0, q0, sq, k0, sk, shift = tile_at(0, 0, sizes, blocks, sequences, UPPER, False)
        only = (cu_q_ptr, h, m0, q0, k0, rows)
        lse2_ptr += q0
        sizes = (batch, heads, group, sq, sk, low, high + shift)
        if low is not None:
            sizes = (batch, heads, group, sq, sk, low + shift, high + shift)
    results = (o_tiles, lse2_ptr, scale_log2)
    gl.warp_specialize(
        [
            (_compute, (0, tiles_of, full, empty, sizes, blocks, only, results, UPPER, PAIRED)),
            (_compute, (1, tiles_of, full, empty, sizes, blocks, only, results, UPPER, PAIRED)),
            (
                fetch_queries_and_keys,
                ((q_tiles, k_tiles, v_tiles), tiles_of, full, empty, sizes, blocks, only, UPPER, PAIRED),
            ),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _compute(
    c: gl.constexpr, tiles_of, full, empty, sizes, blocks, only, results, UPPER: gl.constexpr, PAIRED: gl.constexpr
):
    """The rows of one group of warps. The product of the weights and values of a tile runs beside the softmax of the next tile, which may be the first of other queries.

    One loop walks all tiles of keys of all tiles of queries: its code is fetched once. Code for whole and masked tiles, first and last
    ones, twice for two groups, did not stay in the caches of a multiprocessor.
    """
    q_s, k_s, v_s, words = tiles_of
    q_full, k_full, v_full = full
    q_empty, k_empty, v_empty = empty
    _batch, heads, _group, sq, sk, low, high = sizes
    o_tiles, lse2_ptr, scale_log2 = results
    STAGES: gl.constexpr = k_s.shape[0]
    BLOCK_N: gl.constexpr = k_s.shape[-2]
    BLOCK_D: gl.constexpr = k_s.shape[-1]
    Z: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, ACC, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, Z)
    ACC_ROW: gl.constexpr = gl.SliceLayout(1, ACC)

    edges = (sk, low, high)
    step = sq if only[0] is None else only[5]
    none = gl.zeros([ROWS, BLOCK_N], gl.float32, Z)
    rows = gl.arange(0, ROWS, ROW)
    count, paired = share(sizes, blocks, only, PAIRED)
    said = (sizes, blocks, only)
    mbarrier.wait(k_full.index(0), 0)
    bh, m0, t, stop, end, tail = walk_once(q_full.index(c), 0, 0, paired, words.index(0), said, BLOCK_N, UPPER, PAIRED)
    n0 = key_of(t, stop, end, tail, bh, m0, sizes, blocks, BLOCK_N, UPPER)
    m0 += c * ROWS
    q = matrix(q_s.index(c))
    k = matrix(k_s.index(0))
    dot = warpgroup_mma_wait(0, [warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)])
    release(k_empty.index(0))
    masked = needs_mask(m0, n0, sure_of(m0, sk, high, UPPER), low, ROWS, BLOCK_N)
    m_i = gl.full([ROWS], float("-inf"), gl.float32, ROW)
    l_i = gl.zeros([ROWS], gl.float32, ROW)
    p, m_i, l_i, alpha = online_step(dot * scale_log2, m0 + rows, n0, edges, masked, m_i, l_i, UPPER)
    p = gl.convert_layout(p.to(q.dtype), WEIGHTS)
    acc = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
    slot = 0
    phase = 0
    k_slot, k_phase = following(slot, phase, STAGES)
    q_slot = 0
    q_phase = 0
    n = 0
    more = (t + 1 < stop) | (count > 1)
    while more:
        done_bh, done_m0, done = bh, m0, q_slot * GROUPS + c
        t += 1
        last = t == stop  # of the walk whose weights wait: this step begins the next one
        if last:
            n += 1
            tma.store_wait(0)  # of the queries before, which have left their place
            release(q_empty.index((gl.where(q_slot == 0, q_s.shape[0] // GROUPS, q_slot) - 1) * GROUPS + c), n > 1)
            q_slot, q_phase = following(q_slot, q_phase, q_s.shape[0] // GROUPS)
            bh, m0, t, stop, end, tail = walk_once(
                q_full.index(q_slot * GROUPS + c), q_phase, n, paired, words.index(q_slot), said, BLOCK_N, UPPER, PAIRED
            )
            m0 += c * ROWS
        more = (t + 1 < stop) | (n + 1 < count)
        n0 = key_of(t, stop, end, tail, bh, m0, sizes, blocks, BLOCK_N, UPPER)
        mbarrier.wait(k_full.index(k_slot), k_phase)
        k = matrix(k_s.index(k_slot))
        q = matrix(q_s.index(q_slot * GROUPS + c))
        dot = warpgroup_mma(q, k.permute([1, 0]), none, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(slot), phase)
        acc = warpgroup_mma(p, matrix(v_s.index(slot)), acc, is_async=True)
        dot = warpgroup_mma_wait(1, [dot])
        release(k_empty.index(k_slot))
        done_m, done_l = m_i, l_i
        m_i = gl.where(last, float("-inf"), m_i)
        l_i = gl.where(last, 0.0, l_i)
        masked = needs_mask(m0, n0, sure_of(m0, sk, high, UPPER), low, ROWS, BLOCK_N)
        p, m_i, l_i, alpha = online_step(dot * scale_log2, m0 + rows, n0, edges, masked, m_i, l_i, UPPER)
        p = gl.convert_layout(p.to(q.dtype), WEIGHTS)
        k_slot, k_phase = following(k_slot, k_phase, STAGES)
        # a branch: the assembler would move the next wait before the exponentials otherwise
        mbarrier.wait(k_full.index(k_slot), k_phase, more)
        acc = warpgroup_mma_wait(0, [acc])
        release(v_empty.index(slot))
        slot, phase = following(slot, phase, STAGES)
        if last:
            to = place(only[0], done_bh // heads, done_bh % heads, done_m0, only[3], sq)
            head = lse2_ptr + done_bh.to(gl.int64) * step
            store_rows(acc, done_m, done_l, q_s.index(done), o_tiles, to, head, done_m0 + rows, sq)
            acc = gl.zeros([ROWS, BLOCK_D], gl.float32, ACC)
        else:
            acc = acc * gl.convert_layout(alpha, ACC_ROW)[:, None]
    mbarrier.wait(v_full.index(slot), phase)
    acc = warpgroup_mma_wait(0, [warpgroup_mma(p, matrix(v_s.index(slot)), acc, is_async=True)])
    to = place(only[0], bh // heads, bh % heads, m0, only[3], sq)
    head = lse2_ptr + bh.to(gl.int64) * step
    store_rows(acc, m_i, l_i, q_s.index(q_slot * GROUPS + c), o_tiles, to, head, m0 + rows, sq)
    tma.store_wait(0)
