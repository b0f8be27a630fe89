from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashverify_kernels.device.arguments import Band, Blocks
from flashverify_kernels.device.mask import LOWER, SPARSE
from flashverify_kernels.device.mask import UPPER as UPPER_FLAG
from flashverify_kernels.device.schedule import KEYS, QUERIES, live_schedule, longest, tile_schedule


@gluon.jit
def walk_of(
    start,
    b,
    h,
    sq,
    sk,
    low,
    high,
    blocks,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    UPPER: gl.constexpr,
    AXIS: gl.constexpr,
):
    """`tile_schedule` in tiles, those of live blocks alone where there is a pattern: (begin, full_begin, full_end, end, table), ascending; begin = end where nothing is seen.

    Args:
        start: as there.
        b: batch.
        h: query head.
        sq: queries.
        sk: keys.
        low: the edge, or None.
        high: the edge, where `UPPER`.
        blocks: fields of `Blocks`; of None where there is no pattern.
        BLOCK_M: as there.
        BLOCK_N: as there.
        UPPER: whether there is such an edge.
        AXIS: as there.
    """
    ptr, batch, head, rows, keys = blocks
    BAND: gl.constexpr = (UPPER_FLAG if UPPER else 0) | (0 if low is None else LOWER)
    MASK: gl.constexpr = BAND | (0 if ptr is None else SPARSE)
    STEP: gl.constexpr = BLOCK_N if AXIS == KEYS else BLOCK_M
    limits = tile_schedule(start, sq, sk, Band(low, high, 0), 0, BLOCK_M, BLOCK_N, MASK, AXIS)
    length = sk if AXIS == KEYS else sq
    limits, table = live_schedule(limits, Blocks(ptr, batch, head, rows, keys), b, h, start, length, MASK, AXIS)
    begin, full_begin, full_end, end = limits
    count = (gl.maximum(end, 0) + STEP - 1) // STEP
    begin = gl.where(begin < end, begin // STEP, count)
    if AXIS == QUERIES:  # without a full tile that is the end, which may lie within a tile
        full_begin += STEP - 1
    full_begin, full_end = within(begin, full_begin // STEP, full_end // STEP, count)
    return begin, full_begin, full_end, count, table


@gluon.jit
def keys_of(m0, b, h, sq, sk, low, high, blocks, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, UPPER: gl.constexpr):
    """The walk over the keys of the queries from `m0` on: the first tile, the one after the last, and the table and the end for `position`.

    At least one tile is walked, which is that behind all keys where they see none: it is fetched as zeros.
    """
    begin, _, _, end, table = walk_of(m0, b, h, sq, sk, low, high, blocks, BLOCK_M, BLOCK_N, UPPER, KEYS)
    none = begin == end
    if blocks[0] is None:
        behind = (sk + BLOCK_N - 1) // BLOCK_N
        first, stop = gl.where(none, behind, begin), gl.where(none, behind + 1, end)
    else:
        first, stop = begin, gl.where(none, end + 1, end)
    return first, stop, table, end


@gluon.jit
def in_order(n, b, h, length, blocks, TILE: gl.constexpr, AXIS: gl.constexpr):
    """As `schedule.longest`, where the walks along `AXIS` of `length` differ by the pattern."""
    ptr, batch, head, rows, keys = blocks
    fixed_size, size = (rows, keys) if AXIS == KEYS else (keys, rows)
    return longest(n, Blocks(ptr, batch, head, rows, keys), b, h, fixed_size, size, length, TILE)


@gluon.jit
def count_tiles(length, blocks, size, TILE: gl.constexpr):
    """Tiles of an axis of `length`, those of whole blocks of `size` where there is a pattern."""
    tiles = (length + TILE - 1) // TILE
    if blocks[0] is not None:
        tiles = (length + size - 1) // size * (size // TILE)
    return tiles


@gluon.jit
def position(t, table, end, length, blocks, size, STEP: gl.constexpr):
    """Where tile `t` of a walk begins on its axis of `length`, of which a block has `size`; behind the axis from the last live tile on."""
    start = t * STEP
    if blocks[0] is not None:
        live = t < end
        block = gl.load(table + start // size, mask=live, other=0)
        start = gl.where(live, block * size + start % size, (length + STEP - 1) // STEP * STEP)
    return start


@gluon.jit
def within(begin, full_begin, full_end, end):
    """The limits of the full tiles, cut so that begin <= full_begin <= full_end <= end: the three segments are then all tiles from `begin` to `end`."""
    full_begin = gl.minimum(gl.maximum(full_begin, begin), end)
    return full_begin, gl.minimum(gl.maximum(full_end, full_begin), end)
