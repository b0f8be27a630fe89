from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from flashverify_kernels.device.arguments import Band
from flashverify_kernels.device.mask import LOWER
from flashverify_kernels.device.mask import UPPER as UPPER_FLAG
from flashverify_kernels.device.schedule import KEYS, tile_schedule


@gluon.jit
def walk_of(
    start,
    sq,
    sk,
    low,
    high,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    UPPER: gl.constexpr,
    AXIS: gl.constexpr,
):
    """`tile_schedule` of a mask with a lower edge, in tiles: (begin, full_begin, full_end, end), ascending; begin = end where nothing is seen.

    Arguments as there; `low` and `high` are the edges, `high` where `UPPER`.
    """
    MASK: gl.constexpr = LOWER | UPPER_FLAG if UPPER else LOWER
    STEP: gl.constexpr = BLOCK_N if AXIS == KEYS else BLOCK_M
    begin, full_begin, full_end, end = tile_schedule(start, sq, sk, Band(low, high, 0), 0, BLOCK_M, BLOCK_N, MASK, AXIS)
    count = (gl.maximum(end, 0) + STEP - 1) // STEP
    begin = gl.where(begin < end, begin // STEP, count)
    full_begin, full_end = within(begin, full_begin // STEP, full_end // STEP, count)
    return begin, full_begin, full_end, count


@gluon.jit
def keys_of(m0, sq, sk, low, high, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, UPPER: gl.constexpr):
    """The first tile of keys that the queries from `m0` on walk, and the one after the last: at least one tile, which is that behind all keys where they see none."""
    begin, _, _, end = walk_of(m0, sq, sk, low, high, BLOCK_M, BLOCK_N, UPPER, KEYS)
    behind = (sk + BLOCK_N - 1) // BLOCK_N  # it is fetched as zeros
    none = begin == end
    return gl.where(none, behind, begin), gl.where(none, behind + 1, end)


@gluon.jit
def within(begin, full_begin, full_end, end):
    """The limits of the full tiles, cut so that begin <= full_begin <= full_end <= end: the three segments are then all tiles from `begin` to `end`."""
    full_begin = gl.minimum(gl.maximum(full_begin, begin), end)
    return full_begin, gl.minimum(gl.maximum(full_end, full_begin), end)
