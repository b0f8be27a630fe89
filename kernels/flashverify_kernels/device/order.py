"""Which program computes which tile: the order in which walks of unequal lengths start."""

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
