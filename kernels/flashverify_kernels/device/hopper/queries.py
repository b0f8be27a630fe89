"""What dK and dV fetch: keys and values, then the tiles of queries with their statistics; and the mask of a tile."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from flashverify_kernels.device.hopper.barriers import following, release
from flashverify_kernels.device.hopper.ragged import place
from flashverify_kernels.device.hopper.walk import position, walk_of
from flashverify_kernels.device.schedule import QUERIES

ROWS = gl.constexpr(64)
"""Keys of a group of four warps."""


@gluon.jit
def fetch_all(
    described,
    statistics,
    tiles_of,
    barriers,
    where,
    mask,
    UPPER: gl.constexpr,
    GROUPS: gl.constexpr,
    AHEAD: gl.constexpr,
):
    """Fetch the keys and values, then the tiles of Q and dO, their LSE and delta, as slots become empty.

    Where the groups are a product ahead, a tile behind all queries follows the last one: it is fetched as zeros.
    """
    q_tiles, k_tiles, v_tiles, do_tiles = described
    k_s, v_s, own_full = tiles_of[1], tiles_of[2], barriers[0]
    b, hk, n0, begin, count, group, q0, k0, cu_ptr = where
    sq, edges, blocks = mask
    low, high, sk = edges
    STAGES: gl.constexpr = tiles_of[0].shape[0]
    BLOCK_M: gl.constexpr = tiles_of[0].shape[-2]
    BLOCK_N: gl.constexpr = GROUPS * ROWS
    table = blocks[0]
    for c in gl.static_range(GROUPS):
        mbarrier.expect(own_full.index(c), k_tiles.block_type.nbytes + v_tiles.block_type.nbytes)
        tma.async_copy_global_to_shared(
            k_tiles, place(cu_ptr, b, hk, n0 + c * ROWS, k0, sk), own_full.index(c), k_s.index(c)
        )
        tma.async_copy_global_to_shared(
            v_tiles, place(cu_ptr, b, hk, n0 + c * ROWS, k0, sk), own_full.index(c), v_s.index(c)
        )
    slot = 0
    phase = 1
    for member in range(group):
        h = hk * group + member
        start, stop = begin, count
        if blocks[0] is not None:
            start, _, _, stop, table = walk_of(n0, b, h, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER, QUERIES)
        for t in range(start, stop):
            m0 = position(t, table, stop, sq, blocks, blocks[3], BLOCK_M)
            values = _of_queries(statistics, member, m0, sq, BLOCK_M)
            _fetch_tile(q_tiles, do_tiles, place(cu_ptr, b, h, m0, q0, sq), values, tiles_of, barriers, slot, phase)
            slot, phase = following(slot, phase, STAGES)
    if AHEAD:
        m0 = (sq + BLOCK_M - 1) // BLOCK_M * BLOCK_M
        values = _of_queries(statistics, group - 1, m0, sq, BLOCK_M)
        _fetch_tile(
            q_tiles, do_tiles, place(cu_ptr, b, hk * group, m0, q0, sq), values, tiles_of, barriers, slot, phase
        )


@gluon.jit
def _of_queries(statistics, member, m0, sq, BLOCK_M: gl.constexpr):
    """LSE and delta of the queries from `m0` on, which padding has such that its weights are 0."""
    i = m0 + gl.arange(0, BLOCK_M, gl.BlockedLayout([BLOCK_M // 32], [32], [1], [0]))
    lse2_ptr, delta_ptr, step = statistics
    at = member.to(gl.int64) * step + i
    lse2 = gl.load(lse2_ptr + at, mask=i < sq, other=float("inf"))
    return lse2, gl.load(delta_ptr + at, mask=i < sq, other=0.0)


@gluon.jit
def _fetch_tile(q_tiles, do_tiles, at, values, tiles_of, barriers, slot, phase):
    """Start to fetch a tile of Q and dO into a slot once it is empty, and store its statistics beside them: two arrivals."""
    q_s, _, _, do_s, lse2_s, delta_s = tiles_of
    _, full, empty = barriers
    mbarrier.wait(empty.index(slot), phase)
    mbarrier.expect(full.index(slot), q_tiles.block_type.nbytes + do_tiles.block_type.nbytes)
    tma.async_copy_global_to_shared(q_tiles, at, full.index(slot), q_s.index(slot))
    tma.async_copy_global_to_shared(do_tiles, at, full.index(slot), do_s.index(slot))
    lse2_s.index(slot).store(values[0])
    delta_s.index(slot).store(values[1])
    release(full.index(slot))


@gluon.jit
def visible(j, m0, edges, p, UPPER: gl.constexpr):
    """Which queries of the tile from `m0` on see the keys `j`, in the shape of P^T; the numbers within the tile are constants, which need no registers."""
    BLOCK_M: gl.constexpr = p.shape[1]
    low, high, _ = edges
    i = gl.arange(0, BLOCK_M, gl.SliceLayout(0, p.type.layout))[None, :]
    if low is None:
        see = (j - high - m0)[:, None] <= i
    elif UPPER:
        see = ((j - high - m0)[:, None] <= i) & (i <= (j - low - m0)[:, None])
    else:
        see = i <= (j - low - m0)[:, None]
    return see
