"""The tile schedule: which tiles are skipped, which need the mask, which are fully visible.

For one tile along an axis, the tiles along the other axis are visited in ascending order in three segments:

    begin --LEADING-- full_begin --FULL-- full_end --TRAILING-- end

Tiles outside [begin, end) are skipped; tiles in `FULL` are visible in every pair as far as the band and the bits are
concerned, the others are masked. Along the queries that is asked of declared pairs only: the LSE of a query behind the last
one is +inf, so its weights are 0, and a key behind the last one reaches nothing but its own rows of dK and dV. `LEADING` is empty unless the band cuts the near side of the axis: `LOWER` along the keys,
`UPPER` along the queries. `TRAILING` is empty along the queries without a lower edge and bits.

`SPARSE` squeezes the dead blocks out of the walked axis: limits are taken to positions among the live ones (`live_limits`),
the loop runs over those, and each position is taken back to the axis (`spread`). Tiles divide blocks, so a tile is all live or
never visited. A walk over n blocks has an int32 table of 2 n + 2 entries: the live blocks in ascending order (n), then how
many blocks before each block and in all are live (n + 1), and at last, in table m, the number of the table with the m-th most live blocks.
"""

import triton
import triton.language as tl

from flashverify_kernels.device.mask import (
    BITS,
    LOWER,
    SPARSE,
    key_begin,
    key_end,
    row_begin,
    row_end,
    sure_begin,
    sure_end,
)

LEADING = tl.constexpr(0)
FULL = tl.constexpr(1)
TRAILING = tl.constexpr(2)

KEYS = tl.constexpr(0)
QUERIES = tl.constexpr(1)


@triton.jit
def tile_schedule(
    start,
    sq,
    k_end,
    band,
    bits_start,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASK: tl.constexpr,
    AXIS: tl.constexpr,
):
    """The limits `(begin, full_begin, full_end, end)` of the segments along `AXIS`.

    Args:
        start: first query (`AXIS` = `KEYS`) or first key (`AXIS` = `QUERIES`) of the tile that stays fixed.
        sq: number of queries.
        k_end: number of keys.
        band: the edges of the mask.
        bits_start: first key that a bit decides.
        BLOCK_M: queries per tile.
        BLOCK_N: keys per tile.
        MASK: parts of the mask.
        AXIS: the axis that is walked.
    """
    STEP: tl.constexpr = BLOCK_N if AXIS == KEYS else BLOCK_M
    if AXIS == KEYS:
        last = tl.minimum(start + BLOCK_M, sq) - 1
        begin = row_begin(start, band, MASK)
        sure_from = row_begin(last, band, MASK)
        sure_to = sure_end(start, sq, k_end, band, bits_start, MASK)
        end = tl.where(start < sq, row_end(last, sq, k_end, band, MASK), 0)
    else:
        last = tl.minimum(start + BLOCK_N, k_end) - 1
        begin = key_begin(start, sq, k_end, band, MASK)
        sure_from = sure_begin(last, sq, k_end, band, bits_start, MASK)
        sure_to = key_end(start, sq, band, MASK)
        end = key_end(last, sq, band, MASK)
    if AXIS == QUERIES or LOWER & MASK:  # otherwise it is 0, a constant
        begin = tl.where(begin < end, begin // STEP * STEP, end)
    full_begin = tl.cdiv(sure_from, STEP) * STEP
    full_end = tl.maximum(sure_to, 0) // STEP * STEP
    if AXIS == QUERIES:  # queries behind the last one need no mask
        full_end = tl.where(sure_to == sq, tl.cdiv(sq, STEP) * STEP, full_end)
    full = (full_begin < full_end) & (begin < end)
    # where no tile is full, all are LEADING in the walk that has no TRAILING, and TRAILING in the others
    none = end if AXIS == QUERIES and not ((LOWER | BITS) & MASK) else begin
    return begin, tl.where(full, full_begin, none), tl.where(full, full_end, none), end


@triton.jit
def segment(limits, SEGMENT: tl.constexpr):
    """The limits of one segment of a schedule."""
    return limits[SEGMENT], limits[SEGMENT + 1]


@triton.jit
def squeeze(x, counts_ptr, size, blocks):
    """From a limit on an axis of `blocks` blocks of `size` to the number of positions before it that are live."""
    x = tl.maximum(x, 0)
    block = x // size
    before = tl.load(counts_ptr + block)
    after = tl.load(counts_ptr + block + 1, mask=block < blocks, other=0)
    return before * size + (after - before) * (x % size)


@triton.jit
def live_row(blocks, b, h, start, fixed_size, size, length):
    """The table of one walk: the live blocks, then the counts.

    Args:
        blocks: its tables are `[B or 1, heads or 1, blocks of the fixed axis, 2 blocks + 2]` int32.
        b: batch.
        h: query head.
        start: first position of the tile that stays fixed.
        fixed_size: positions per block of the fixed axis.
        size: positions per block of the walked axis.
        length: positions of the walked axis.
    """
    row = (start // fixed_size).to(tl.int64) * (2 * tl.cdiv(length, size) + 2)
    return blocks.ptr + (b.to(tl.int64) * blocks.batch + h.to(tl.int64) * blocks.head + row)


@triton.jit
def longest(n, blocks, b, h, fixed_size, size, length, TILE: tl.constexpr):
    """The tile of the fixed axis that has the n-th longest walk. There is one for each `TILE` of each whole block.

    Args:
        n: its number.
        blocks: as in `live_row`.
        b: batch.
        h: query head.
        fixed_size: as there, a multiple of `TILE`.
        size: as there.
        length: as there.
        TILE: positions of a tile.
    """
    tiles = fixed_size // TILE
    row = live_row(blocks, b, h, n // tiles * fixed_size, fixed_size, size, length)
    return tl.load(row + 2 * tl.cdiv(length, size) + 1) * tiles + n % tiles


@triton.jit
def live_limits(limits, live_ptr, size, length):
    """The limits of a schedule as positions among the live blocks of the table `live_ptr`."""
    blocks = tl.cdiv(length, size)
    counts_ptr = live_ptr + blocks
    return (
        squeeze(limits[0], counts_ptr, size, blocks),
        squeeze(limits[1], counts_ptr, size, blocks),
        squeeze(limits[2], counts_ptr, size, blocks),
        squeeze(limits[3], counts_ptr, size, blocks),
    )


@triton.jit
def live_schedule(limits, blocks, b, h, start, length, MASK: tl.constexpr, AXIS: tl.constexpr):
    """The limits of a schedule among the live blocks, and the table that `spread` reads; unchanged and 0 unless `SPARSE`.

    Args:
        limits: of `tile_schedule`.
        blocks: the live blocks.
        b: batch.
        h: query head.
        start: first position of the tile that stays fixed.
        length: positions of the walked axis.
        MASK: parts of the mask.
        AXIS: the axis that is walked.
    """
    live_ptr = 0
    if SPARSE & MASK:
        fixed_size = blocks.rows if AXIS == KEYS else blocks.keys
        size = blocks.keys if AXIS == KEYS else blocks.rows
        live_ptr = live_row(blocks, b, h, start, fixed_size, size, length)
        limits = live_limits(limits, live_ptr, size, length)
    return limits, live_ptr


@triton.jit
def spread(x, live_ptr, size, MASK: tl.constexpr):
    """From a position among live blocks to the axis; the identity unless `SPARSE`."""
    if SPARSE & MASK:
        block = tl.load(live_ptr + x // size)
        x = block * size + x % size  # flashverify: int32-offset is declared, it is a position of the sequence
    return x
