"""What the warp that fetches tells the groups that compute: where a tile of queries is and which tiles of keys it walks.

Under a pattern of live blocks that takes loads from global memory, each of which waits for the one before. The fetching warp is ahead and
has the time; for a group that computes they would lie between the last product of a tile of queries and the first of the next.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from flashverify_kernels.device.arguments import Blocks
from flashverify_kernels.device.hopper.barriers import meet
from flashverify_kernels.device.hopper.walk import position
from flashverify_kernels.device.hopper.walks_of_rows import walk_of_share
from flashverify_kernels.device.schedule import live_row

WORDS = gl.constexpr(8)
"""Room for the six numbers that are told, which is a power of two."""


@gluon.jit
def make_words(COUNT: gl.constexpr):
    """Room in shared memory for what is told of `COUNT` tiles of queries."""
    return gl.allocate_shared_memory(gl.int32, [COUNT, WORDS], gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.jit
def tell(words, bh, m0, first, stop, end, tail):
    """Write what `told` reads; one warp. It is there for whoever waits for a barrier at which that warp arrives later."""
    n = gl.arange(0, WORDS, gl.BlockedLayout([1], [32], [1], [0]))
    where = gl.where(n == 0, bh, gl.where(n == 1, m0, first))
    walk = gl.where(n == 3, stop, gl.where(n == 4, end, tail))
    words.store(gl.where(n < 3, where, walk))
    meet()


@gluon.jit
def told(words):
    """The head through all batches, the first query, the first tile of keys, the one after the last, the one after the last live one, and where the last one begins; four warps, each thread for itself."""
    ALONE: gl.constexpr = gl.BlockedLayout([WORDS], [32], [4], [0])
    found = words.load(ALONE)
    return (
        _word(found, 0),
        _word(found, 1),
        _word(found, 2),
        _word(found, 3),
        _word(found, 4),
        _word(found, 5),
    )


@gluon.jit
def _word(found, N: gl.constexpr):
    return gl.sum(gl.where(gl.arange(0, WORDS, found.type.layout) == N, found, 0), 0)


@gluon.jit
def walk_once(
    there,
    phase,
    n,
    paired,
    words,
    said,
    BLOCK_N: gl.constexpr,
    UPPER: gl.constexpr,
    PAIRED: gl.constexpr,
):
    """What `told` returns of tile `n` of queries, once it is there; calculated, not told, where there is no pattern.

    Args:
        there: barrier of the tile.
        phase: which it waits for.
        n: as in `walk_of_share`.
        paired: as there.
        words: what is told of the tile.
        said: sizes, blocks and packed sequence of the call.
        BLOCK_N: keys of a tile.
        UPPER: whether there is an upper edge.
        PAIRED: as there.
    """
    sizes, blocks, only = said
    if blocks[0] is None:
        bh, m0, first, stop, _table, end = walk_of_share(n, paired, sizes, blocks, only, BLOCK_N, UPPER, PAIRED)
        tail = 0
        mbarrier.wait(there, phase)
    else:
        mbarrier.wait(there, phase)
        bh, m0, first, stop, end, tail = told(words)
    return bh, m0, first, stop, end, tail


@gluon.jit
def key_of(t, stop, end, tail, bh, m0, sizes, blocks, BLOCK_N: gl.constexpr, UPPER: gl.constexpr):
    """Where tile `t` of a walk begins on the axis of keys, as far as `needs_mask` depends on it.

    Of a pattern alone the last tile is the only one that may end behind the keys. For all others this is 0.

    Args:
        t: the tile.
        stop: the tile after the last.
        end: the one after the last live one.
        tail: where the last one begins.
        bh: head, through all batches.
        m0: a query of the walk.
        sizes: of the call.
        blocks: of the call.
        BLOCK_N: keys of a tile.
        UPPER: whether there is an upper edge.
    """
    _batch, heads, _group, _sq, sk, low, _high = sizes
    if blocks[0] is None:
        n0 = t * BLOCK_N
    elif low is None and not UPPER:
        n0 = gl.where(t + 1 == stop, tail, 0)
    else:
        ptr, batch, head, rows, keys = blocks
        table = live_row(Blocks(ptr, batch, head, rows, keys), bh // heads, bh % heads, m0, rows, keys, sk)
        n0 = position(t, table, end, sk, blocks, keys, BLOCK_N)
    return n0
