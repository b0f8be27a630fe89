"""What dK and dV fetch, and what they read of a tile of queries: its mask and its statistics."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from flashverify_kernels.device.hopper.barriers import fetch, following
from flashverify_kernels.device.hopper.ragged import place
from flashverify_kernels.device.hopper.walk import position, walk_of
from flashverify_kernels.device.schedule import QUERIES

GROUPS = gl.constexpr(2)
ROWS = gl.constexpr(64)
"""Groups of four warps of a program, and keys of each."""


@gluon.jit
def fetch_all(q_tiles, k_tiles, v_tiles, do_tiles, tiles_of, full, empty, where, mask, UPPER: gl.constexpr):
    """Fetch the keys and values, then the tiles of Q and dO as slots become empty."""
    q_s, k_s, v_s, do_s = tiles_of
    q_full, k_full, v_full, do_full = full
    q_empty, do_empty = empty
    b, hk, n0, begin, count, group, q0, k0, cu_ptr = where
    sq, edges, blocks = mask
    low, high, sk = edges
    STAGES: gl.constexpr = q_s.shape[0]
    BLOCK_M: gl.constexpr = q_s.shape[-2]
    BLOCK_N: gl.constexpr = GROUPS * ROWS
    table = blocks[0]
    for c in gl.static_range(GROUPS):
        fetch(k_tiles, place(cu_ptr, b, hk, n0 + c * ROWS, k0, sk), k_s.index(c), k_full.index(c))
        fetch(v_tiles, place(cu_ptr, b, hk, n0 + c * ROWS, k0, sk), v_s.index(c), v_full.index(c))
    slot = 0
    phase = 1
    for member in range(group):
        h = hk * group + member
        start, stop = begin, count
        if blocks[0] is not None:
            start, _, _, stop, table = walk_of(n0, b, h, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER, QUERIES)
        for t in range(start, stop):
            m0 = position(t, table, stop, sq, blocks, blocks[3], BLOCK_M)
            mbarrier.wait(q_empty.index(slot), phase)
            fetch(q_tiles, place(cu_ptr, b, h, m0, q0, sq), q_s.index(slot), q_full.index(slot))
            mbarrier.wait(do_empty.index(slot), phase)
            fetch(do_tiles, place(cu_ptr, b, h, m0, q0, sq), do_s.index(slot), do_full.index(slot))
            slot, phase = following(slot, phase, STAGES)


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


@gluon.jit
def of_queries(head_ptr, i, sq, fill, EVEN: gl.constexpr):
    """A statistic of the queries `i` of a head, `fill` from query `sq` on."""
    return gl.load(head_ptr + i) if EVEN else gl.load(head_ptr + i, mask=i < sq, other=fill)
