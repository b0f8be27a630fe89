from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from flashverify_kernels.device.hopper.barriers import matrix, meet


@gluon.jit
def rows_of(heads, sq, sk, high, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, UPPER: gl.constexpr):
    """The (batch and head, batch, head, first query) of a program of the forward, the tiles of keys that it walks, and the keys that all rows see.

    The programs of a head begin with the last queries: under a causal mask the longest walks start first.
    """
    tiles = (sq + BLOCK_M - 1) // BLOCK_M
    bh = gl.program_id(0) // tiles
    m0 = (tiles - 1 - gl.program_id(0) % tiles) * BLOCK_M
    b = bh // heads
    h = bh % heads
    count = count_of(m0, sq, sk, high, BLOCK_M, BLOCK_N, UPPER)
    return bh, b, h, m0, count, sure_of(m0, sk, high, UPPER)


@gluon.jit
def sure_of(m0, sk, high, UPPER: gl.constexpr):
    """The keys, from the first on, that all queries from `m0` on see, without a lower edge."""
    sure = sk
    if UPPER:
        sure = gl.maximum(gl.minimum(m0 + 1 + high, sk), 0)
    return sure


@gluon.jit
def count_of(m0, sq, sk, high, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, UPPER: gl.constexpr):
    """Tiles of keys that the queries from `m0` on walk, without a lower edge."""
    end = sk
    if UPPER:
        end = gl.minimum(gl.minimum(m0 + BLOCK_M, sq) + high, sk)
    return gl.maximum((end + BLOCK_N - 1) // BLOCK_N, 1)  # a row without keys walks one tile, which it does not see


@gluon.jit
def store_rows(acc, m_i, l_i, buffer, o_tiles, place, lse_head, i, sq):
    """Store O and LSE of the queries `i`; O passes through `buffer`, the tile of Q, which no warp reads any more; `tma.store_wait` waits until it may be written again.

    Args:
        acc: sum of the weighted values.
        m_i: largest logit of each row, base 2.
        l_i: sum of the weights of each row.
        buffer: a tile of O in shared memory.
        o_tiles: descriptor of O.
        place: of the tile in O.
        lse_head: LSE of the head, log base 2.
        i: the queries, in the layout of the rows of a tile of logits.
        sq: queries of the head.
    """
    divisor = gl.where(l_i == 0.0, 1.0, l_i)
    # of a divisor from 1 on, a quotient is the product with the reciprocal, bit for bit: that is how a GPU divides
    o = acc * gl.convert_layout(1.0 / divisor, gl.SliceLayout(1, acc.type.layout))[:, None]
    meet()
    q = matrix(buffer)
    q.store(o.to(q.dtype))
    fence_async_shared()
    meet()
    tma.async_copy_shared_to_global(o_tiles, place, buffer)
    gl.store(lse_head + i, m_i + gl.log2(divisor), mask=i < sq)  # the fence would wait for it
