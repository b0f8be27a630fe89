from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from flashverify_kernels.device.address import span
from flashverify_kernels.device.hopper.barriers import make_barriers, make_numbers, make_tiles, meet
from flashverify_kernels.device.hopper.gradients import gradients_of_keys
from flashverify_kernels.device.hopper.queries import ROWS, fetch_all
from flashverify_kernels.device.hopper.walk import count_tiles, in_order, walk_of
from flashverify_kernels.device.order import packed_place, tile_of
from flashverify_kernels.device.schedule import QUERIES

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
_UNSPECIALISED += ["cu_q_ptr", "cu_k_ptr", "packed", "halvings", "rows", "align_end"]


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
    STAGES: gl.constexpr,
    GROUPS: gl.constexpr,
    AHEAD: gl.constexpr,
):
    """Compute dK and dV of 64 keys a group of warps: one program per (batch, kv head, keys of its groups), which walks the query heads of its kv head.

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
        block_keys: keys per block, a multiple of those of a program.
        cu_q_ptr: where the queries of packed sequences begin; None: there are none, and no number of them. Then descriptors and statistics
            are those of `[1, heads, rows, D]`, and `low` and `high` are those of sequences with as many queries as keys.
        cu_k_ptr: where their keys begin.
        packed: number of sequences.
        halvings: see `device.order`.
        rows: queries of all sequences.
        align_end: 1 if the edges start at the last key, 0 if at the first.
        UPPER: whether there is an upper edge.
        STAGES: tiles of Q and of dO that are on their way or in use.
        GROUPS: of four warps that compute, 1 or 2.
        AHEAD: whether the product of K and the next tile of Q is under way beside the weights of this one.
    """
    BLOCK_N: gl.constexpr = GROUPS * ROWS
    BLOCK_M: gl.constexpr = q_tiles.block_type.shape[-2]
    blocks = (live_ptr, live_batch, live_head, block_rows, block_keys)
    q0, k0 = 0, 0
    if cu_k_ptr is None:
        bh, tile = tile_of(count_tiles(sk, blocks, block_keys, BLOCK_N), UPPER and low is None)
        b = bh // (heads // group)
        hk = bh % (heads // group)
        if live_ptr is not None and low is None and not UPPER:
            tile = in_order(tile, b, hk * group, sq, blocks, BLOCK_N, QUERIES)
        row = (b.to(gl.int64) * heads + hk * group) * sq
        step = sq
    else:
        b, hk, tile = packed_place(gl.program_id(0), cu_k_ptr, packed, halvings, heads // group, BLOCK_N, False)
        q0, sq = span(cu_q_ptr, b, sq)
        k0, sk = span(cu_k_ptr, b, sk)
        row = hk.to(gl.int64) * group * rows + q0
        step = rows
        shift = align_end * (sk - sq)
        high += shift
        if low is not None:
            low += shift
    n0 = tile * BLOCK_N
    count = (sq + BLOCK_M - 1) // BLOCK_M
    if cu_k_ptr is not None:
        count = gl.where(n0 < sk, count, 0)
    begin = 0
    if UPPER:
        begin = gl.minimum(gl.minimum(gl.maximum(n0 - high, 0), sq) // BLOCK_M, count)
    edges = (low, high, sk)
    if low is not None and live_ptr is None:
        begin, _, _, count, _ = walk_of(n0, b, hk, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER, QUERIES)

    k_s = make_tiles(k_tiles, GROUPS)
    v_s = make_tiles(v_tiles, GROUPS)
    q_s = make_tiles(q_tiles, STAGES)
    do_s = make_tiles(do_tiles, STAGES)
    lse2_s = make_numbers(STAGES, BLOCK_M)
    delta_s = make_numbers(STAGES, BLOCK_M)
    own_full = make_barriers(GROUPS, 1)
    full = make_barriers(STAGES, 2)
    empty = make_barriers(STAGES, GROUPS)
    fence_async_shared()
    meet()
    described = (q_tiles, k_tiles, v_tiles, do_tiles)
    tiles_of = (q_s, k_s, v_s, do_s, lse2_s, delta_s)
    barriers = (own_full, full, empty)
    where = (b, hk, n0, begin, count, group, q0, k0, cu_k_ptr)
    statistics = (lse2_ptr + row, delta_ptr + row, step)
    outputs = (dk_tiles, dv_tiles, scale, scale_log2)
    mask = (sq, edges, blocks)
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (gradients_of_keys, (0, tiles_of, barriers, where, outputs, mask, UPPER, GROUPS, AHEAD)),
                (fetch_all, (described, statistics, tiles_of, barriers, where, mask, UPPER, GROUPS, AHEAD)),
            ],
            [1],
            [24],
        )
    else:
        gl.warp_specialize(
            [
                (gradients_of_keys, (0, tiles_of, barriers, where, outputs, mask, UPPER, GROUPS, AHEAD)),
                (gradients_of_keys, (1, tiles_of, barriers, where, outputs, mask, UPPER, GROUPS, AHEAD)),
                (fetch_all, (described, statistics, tiles_of, barriers, where, mask, UPPER, GROUPS, AHEAD)),
            ],
            [4, 1],
            [240, 24],
        )
