"""The walks of the tiles of queries of a program of the forward."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashverify_kernels.device.hopper.order import tile_of
from flashverify_kernels.device.hopper.rows import count_of
from flashverify_kernels.device.hopper.walk import keys_of

GROUPS = gl.constexpr(2)
ROWS = gl.constexpr(64)
"""Groups of four warps of a program, and queries of each."""


@gluon.jit
def walk_of_tile(b, h, m0, sizes, blocks, BLOCK_N: gl.constexpr, UPPER: gl.constexpr):
    """As `keys_of`, of the tile of queries from `m0` on."""
    _, _, _, sq, sk, low, high = sizes
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    if low is None and blocks[0] is None:
        stop = count_of(m0, sq, sk, high, BLOCK_M, BLOCK_N, UPPER)
        first, table, end = 0, 0, stop
    else:
        first, stop, table, end = keys_of(m0, b, h, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER)
    return first, stop, table, end


@gluon.jit
def walk_of_share(n, paired, sizes, blocks, BLOCK_N: gl.constexpr, UPPER: gl.constexpr, PAIRED: gl.constexpr):
    """Where tile `n` of this program is, its head through all batches and its first query, and its walk as `keys_of`."""
    batch, heads, _, sq, _, _, _ = sizes
    tiles = (sq + GROUPS * ROWS - 1) // (GROUPS * ROWS)
    bh, tile = tile_of(n, paired, batch * heads, tiles, PAIRED)
    m0 = tile * GROUPS * ROWS
    first, stop, table, end = walk_of_tile(bh // heads, bh % heads, m0, sizes, blocks, BLOCK_N, UPPER)
    return bh, m0, first, stop, table, end
