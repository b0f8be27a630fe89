"""The walks of the forward: those of the tiles of queries of a program, and of the rows of a group of warps."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashverify_kernels.device.address import span
from flashverify_kernels.device.hopper.order import share_of, tile_of
from flashverify_kernels.device.hopper.rows import count_of
from flashverify_kernels.device.hopper.walk import count_tiles, in_order, keys_of, walk_of, within
from flashverify_kernels.device.order import packed_place
from flashverify_kernels.device.schedule import KEYS

GROUPS = gl.constexpr(2)
ROWS = gl.constexpr(64)
"""Groups of four warps of a program, and queries of each."""


@gluon.jit
def tiles_of_program(sizes, blocks, sequences, PAIRED: gl.constexpr):
    """As `share_of`: how many tiles of queries this program computes, and how many of them come in pairs."""
    batch, heads, _, sq, _, _, _ = sizes
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    if sequences[0] is None:
        count, paired = share_of(batch * heads, count_tiles(sq, blocks, blocks[3], BLOCK_M), PAIRED)
    else:
        _, _, packed, _, rows, _ = sequences
        count, paired = share_of(heads, gl.minimum(rows, packed * sq) // BLOCK_M + packed, False)
    return count, paired


@gluon.jit
def tile_at(n, paired, sizes, blocks, sequences, UPPER: gl.constexpr, PAIRED: gl.constexpr):
    """Tile `n` of this program: batch or sequence, head, first query, where the queries of a packed sequence begin, how many there are, the same of its keys, and how far its edges lie from those that are given."""
    batch, heads, _, sq, sk, low, _ = sizes
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    q0, k0, shift = 0, 0, 0
    if sequences[0] is None:
        bh, tile = tile_of(n, paired, batch * heads, count_tiles(sq, blocks, blocks[3], BLOCK_M), PAIRED)
        b, h = bh // heads, bh % heads
        if blocks[0] is not None and low is None and not UPPER:
            tile = in_order(tile, b, h, sk, blocks, BLOCK_M, KEYS)
    else:
        cu_q_ptr, cu_k_ptr, packed, halvings, _, align_end = sequences
        unit = gl.program_id(0) + n * gl.num_programs(0)
        b, h, tile = packed_place(unit, cu_q_ptr, packed, halvings, heads, BLOCK_M, True)
        q0, sq = span(cu_q_ptr, b, sq)
        k0, sk = span(cu_k_ptr, b, sk)
        shift = align_end * (sk - sq)
    return b, h, tile * BLOCK_M, q0, sq, k0, sk, shift


@gluon.jit
def first_row(b, h, q0, sizes, sequences):
    """The number of the first query of a head among all statistics."""
    _, heads, _, sq, _, _, _ = sizes
    row = (b * heads + h).to(gl.int64) * sq
    if sequences[0] is not None:
        row = h.to(gl.int64) * sequences[4] + q0
    return row


@gluon.jit
def walk_of_tile(b, h, m0, sizes, blocks, BLOCK_N: gl.constexpr, UPPER: gl.constexpr):
    """As `keys_of`, of the tile of queries from `m0` on, which sees nothing behind the last query."""
    _, _, _, sq, sk, low, high = sizes
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    if low is None and blocks[0] is None:
        stop = gl.where(m0 < sq, count_of(m0, sq, sk, high, BLOCK_M, BLOCK_N, UPPER), 1)
        first, table, end = 0, 0, stop
    else:
        first, stop, table, end = keys_of(m0, b, h, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER)
    return first, stop, table, end


@gluon.jit
def share(sizes, blocks, only, PAIRED: gl.constexpr):
    """As `tiles_of_program`; a program over packed sequences has one tile, see `walk_of_share`."""
    count, paired = 1, 0
    if only[0] is None:
        count, paired = share_of(sizes[0] * sizes[1], count_tiles(sizes[3], blocks, blocks[3], GROUPS * ROWS), PAIRED)
    return count, paired


@gluon.jit
def walk_of_share(n, paired, sizes, blocks, only, BLOCK_N: gl.constexpr, UPPER: gl.constexpr, PAIRED: gl.constexpr):
    """Where tile `n` of this program is, its head through all batches and its first query, and its walk as `keys_of`.

    Of packed sequences, `only` is where the queries of each begin, the head and the first query of the only tile, where the queries and the
    keys of its sequence begin, and all queries; the sizes are those of the sequence. Without any it begins with None.
    """
    heads = sizes[1]
    bh, m0 = only[1], only[2]
    if only[0] is None:
        b, h, m0, _q0, _sq, _k0, _sk, _shift = tile_at(n, paired, sizes, blocks, only, UPPER, PAIRED)
        bh = b * heads + h
    first, stop, table, end = walk_of_tile(bh // heads, bh % heads, m0, sizes, blocks, BLOCK_N, UPPER)
    return bh, m0, first, stop, table, end


@gluon.jit
def walk_of_group(c, b, h, m0, sizes, blocks, BLOCK_N: gl.constexpr, UPPER: gl.constexpr):
    """The walk of a group of the rows from `m0` on: first tile, full ones, the end, and the table and the end for `position`."""
    _, _, _, sq, sk, low, high = sizes
    first, stop, table, end = walk_of_tile(b, h, m0, sizes, blocks, BLOCK_N, UPPER)
    m0 += c * ROWS
    if low is None and blocks[0] is None:
        leading, whole = 1, sk // BLOCK_N
        if UPPER:
            whole = gl.maximum(gl.minimum(m0 + 1 + high, sk), 0) // BLOCK_N
        whole = gl.minimum(whole, stop)
    else:
        _, leading, whole, _, _ = walk_of(m0, b, h, sq, sk, low, high, blocks, ROWS, BLOCK_N, UPPER, KEYS)
        leading, whole = within(first + 1, leading, whole, stop)
    return first, leading, whole, stop, table, end
