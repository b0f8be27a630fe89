"""Dropout: which pairs are kept. A pure function of (seed, offset, b, h, i, j), so forward and backward agree and tiles do not matter.

Pair (i, j) of query head h of sequence b is kept where word number j % 4 of Philox4x32-10 is at least floor(p * 2^32), with

    counter (j // 4, i, b * heads + h, offset)        key (seed mod 2^32, seed // 2^32)

i and j count within the sequence. One Philox serves four neighbouring keys.
"""

import triton
import triton.language as tl


@triton.jit
def keep_tile(i, n0, stream, draws, BLOCK_N: tl.constexpr):
    """Which pairs of a tile are kept, `[len(i), BLOCK_N]` bool.

    Args:
        i: `[BLOCK_M]` row numbers.
        n0: first key of the tile, a multiple of 4.
        stream: b * heads + h.
        draws: the `DropoutDraws`.
        BLOCK_N: keys of the tile.
    """
    quad = n0 // 4 + tl.arange(0, BLOCK_N // 4)
    # [len(i), BLOCK_N // 4] each: words 0 to 3
    w0, w1, w2, w3 = tl.philox(draws.seed, quad[None, :], i[:, None], stream, draws.offset.to(tl.uint32))
    limit = draws.threshold.to(tl.uint32)
    even = tl.join(w0 >= limit, w2 >= limit)
    odd = tl.join(w1 >= limit, w3 >= limit)
    return tl.reshape(tl.join(even, odd), [i.shape[0], BLOCK_N])


@triton.jit
def keep_tile_transposed(i, n0, stream, draws, BLOCK_N: tl.constexpr):
    """The same as `[BLOCK_N, len(i)]`."""
    return tl.trans(keep_tile(i, n0, stream, draws, BLOCK_N))


@triton.jit
def drop(x, keep):
    """`x` where kept, exactly 0 elsewhere."""
    return tl.where(keep, x, 0.0)
