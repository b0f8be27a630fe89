"""Which tiles of queries a program of the forward computes, one after the other: every program has nearly as much to do."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def share_of(all_heads, tiles, PAIRED: gl.constexpr):
    """How many tiles this program computes, and how many of them, the first ones, come in pairs.

    Args:
        all_heads: query heads of all batches.
        tiles: tiles of queries of a head.
        PAIRED: whether the first and the last tile of a head are a pair, the second and the second to last, and so on: under a causal
            mask all pairs walk as many keys.
    """
    first = gl.program_id(0)
    programs = gl.num_programs(0)
    paired = 0
    count = (all_heads * tiles - first + programs - 1) // programs
    if PAIRED:
        pairs = all_heads * (tiles // 2)
        units = pairs + all_heads * (tiles % 2)
        own = (pairs - first + programs - 1) // programs
        paired = 2 * own
        count = own + (units - first + programs - 1) // programs
    return count, paired


@gluon.jit
def tile_of(n, paired, all_heads, tiles, PAIRED: gl.constexpr):
    """Tile `n` of this program: its head, counted through all batches, and its number in the head; the last queries of a head come first."""
    first = gl.program_id(0)
    programs = gl.num_programs(0)
    if PAIRED:
        half = tiles // 2
        in_pair = n < paired
        unit = first + gl.where(in_pair, n // 2, n - paired // 2) * programs
        rank = unit % gl.maximum(half, 1)
        head = gl.where(in_pair, unit // gl.maximum(half, 1), unit - all_heads * half)
        tile = gl.where(in_pair, gl.where(n % 2 == 0, tiles - 1 - rank, rank), half)
    else:
        unit = first + n * programs
        head = unit // tiles
        tile = tiles - 1 - unit % tiles
    return head, tile
