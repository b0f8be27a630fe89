"""Which program computes which tile: the order in which walks of unequal lengths start."""

import triton
import triton.language as tl

TURN = tl.constexpr(256)
"""About how many programs start before the next heads begin: as many as leave no long walk to the end, and few enough that heads in flight share the L2 cache."""


@triton.jit
def tile_of(tiles, FALLING: tl.constexpr):
    """The head, counted over all batches, and the tile of this program, where each head has `tiles` programs.

    Args:
        tiles: of a head.
        FALLING: whether the walks of a head get shorter with each tile. Then heads start together, each tile of all of them before the
            next one: with one head after the other the first tiles of the last heads, the longest walks, would start last.
    """
    program = tl.program_id(0)
    head = program // tiles
    tile = program % tiles
    if FALLING:
        together = tl.maximum(TURN // tiles, 1)
        first = head // together * together
        width = tl.minimum(together, tl.num_programs(0) // tiles - first)
        program -= first * tiles
        head = first + program % width
        tile = program // width
    return head, tile
