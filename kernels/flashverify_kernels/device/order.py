"""Which program computes which tile: the order in which walks of unequal lengths start, and where packed sequences have theirs.

A head of a packed sequence has a program for each tile that it has, and at most one more: sequence s has the tiles from
`cu[s] // BLOCK + s` on, counted through all sequences. So neither the host nor another kernel needs the lengths.
"""

import triton
import triton.language as tl

TURN = tl.constexpr(256)
"""About how many programs start before the next heads begin: twice those of a Hopper GPU, and few enough that heads in flight share the L2 cache."""


@triton.jit
def tile_of(tiles, FALLING: tl.constexpr):
    """The head, counted over all batches, and the tile of this program, where each head has `tiles` programs.

    Args:
        tiles: of a head.
        FALLING: whether the walks of a head get shorter with each tile. Then heads of fewer than `TURN` / 2 tiles start together, each tile
            of all of them before the next one: with one head after the other the longest walks of the last heads would start late.
    """
    program = tl.program_id(0)
    head = program // tiles
    tile = program % tiles
    if FALLING:
        together = tl.where(2 * tiles < TURN, TURN // tiles, 1)
        first = head // together * together
        width = tl.minimum(together, tl.num_programs(0) // tiles - first)
        program -= first * tiles
        head = first + program % width
        tile = program // width
    return head, tile


@triton.jit
def sequence_of(cu_ptr, packed, halvings, place, BLOCK: tl.constexpr):
    """The packed sequence that has tile `place`, counted through all; the last one behind all tiles.

    Args:
        cu_ptr: where sequences begin.
        packed: their number.
        halvings: how often a range of so many is halved until one is left.
        place: of the tile.
        BLOCK: rows of a tile.
    """
    found = 0
    for n in range(halvings):
        tried = found + (1 << (halvings - 1 - n))
        begin = tl.load(cu_ptr + tried, mask=tried < packed, other=0)
        found = tl.where((tried < packed) & (begin // BLOCK + tried <= place), tried, found)
    return found


@triton.jit
def packed_place(unit, cu_ptr, packed, halvings, heads, BLOCK: tl.constexpr, LAST_FIRST: tl.constexpr):
    """The sequence, the head and the tile of the program `unit`, one head of a sequence after the other. Behind the tiles of a head are no rows.

    Args:
        unit: number of the program where each has a tile.
        cu_ptr: where sequences begin.
        packed: their number.
        halvings: as in `sequence_of`.
        heads: of a sequence.
        BLOCK: rows of a tile.
        LAST_FIRST: whether the last tile of a head comes first.
    """
    b = sequence_of(cu_ptr, packed, halvings, unit // heads, BLOCK)
    begin = tl.load(cu_ptr + b) // BLOCK
    tiles = tl.load(cu_ptr + b + 1) // BLOCK + 1 - begin
    unit -= (begin + b) * heads  # flashverify: int32-offset is declared, it is at most the number of a program
    h = tl.minimum(unit // tiles, heads - 1)
    tile = unit - h * tiles  # flashverify: int32-offset is declared, it is at most the number of a program
    if LAST_FIRST:
        tile = tl.where(tile < tiles, tiles - 1 - tile, tile)
    return b, h, tile


@triton.jit
def place_of(cu_ptr, sequences, rows, heads, BLOCK: tl.constexpr, FALLING: tl.constexpr, LAST_FIRST: tl.constexpr):
    """The sequence, the head and the tile of this program, which `programs.programs_of` has counted.

    Args:
        cu_ptr: where packed sequences begin, or None.
        sequences: of the call.
        rows: of a sequence that is not packed.
        heads: of a sequence.
        BLOCK: rows of a tile.
        FALLING: as in `tile_of`; packed sequences come one head after the other.
        LAST_FIRST: whether the last tile of a head comes first.
    """
    if cu_ptr is None:
        tiles = tl.cdiv(rows, BLOCK)
        bh, tile = tile_of(tiles, FALLING)
        b = bh // heads
        h = bh % heads
        if LAST_FIRST:
            tile = tiles - 1 - tile
    else:
        unit = tl.program_id(0)
        b, h, tile = packed_place(unit, cu_ptr, sequences.packed, sequences.halvings, heads, BLOCK, LAST_FIRST)
    return b, h, tile
