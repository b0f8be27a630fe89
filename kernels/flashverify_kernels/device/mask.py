"""The mask: which key `j` a query `i` sees. Everything else about masks is derived from the functions here.

Rows and keys are numbered within their sequence, which has `sq` rows and `k_end` keys. A mask is the AND of the parts that
the flags of `MASK` name; with none of them every row sees every key.

| flag | row i sees key j where |
|---|---|
| | i < sq and j < k_end, always |
| `UPPER` | j <= i + high: a causal mask, the right side of a window |
| `PREFIX` | j < prefix, in place of what `UPPER` asks: a prefix language model; with `UPPER` only |
| `LOWER` | j >= i + low: the left side of a window; low <= high |
| `BITS` | j < bits_start, or bit (j - bits_start) % 32 of word (j - bits_start) // 32 of row i is set |
| `SPARSE` | the block of (i, j) is live: a property of whole tiles, which the schedule deals with |

A tree is `BITS | UPPER` with high = bits_start: every node sees the keys before the nodes, and of the nodes itself and
ancestors, which come before it. With a bitmap beside it, the bits of both start at the first key. Both ends of the keys that a
row may see never decrease with the row, which is all that the tile schedule relies on.
"""

import triton
import triton.language as tl

from flashverify_kernels.device.arguments import Band

UPPER = tl.constexpr(1)
LOWER = tl.constexpr(2)
BITS = tl.constexpr(4)
SPARSE = tl.constexpr(8)
PREFIX = tl.constexpr(16)


@triton.jit
def band_of(b, q_end, k_end, mask, MASK: tl.constexpr):
    """The `Band` of sequence `b`: `left` and `right` keys around the diagonal, which starts at the first key (`align_end` = 0) or ends at the last one (1)."""
    shift = mask.align_end * (k_end - q_end)
    prefix = 0
    if PREFIX & MASK:
        prefix = tl.minimum(tl.maximum(tl.load(mask.prefix_lengths + b), 0), k_end)
    return Band(shift - mask.left, shift + mask.right, prefix)


@triton.jit
def row_begin(i, band, MASK: tl.constexpr):
    """Query `i` sees no key before this one."""
    return tl.maximum(i + band.low, 0) if LOWER & MASK else i * 0


@triton.jit
def row_end(i, sq, k_end, band, MASK: tl.constexpr):
    """Query `i` sees neither this key nor any after it; not positive for padded rows and for rows without keys."""
    end = tl.minimum(i + 1 + band.high, k_end) if UPPER & MASK else k_end
    if PREFIX & MASK:
        end = tl.maximum(end, band.prefix)
    return tl.where(i < sq, end, 0)


@triton.jit
def sure_end(i, sq, k_end, band, bits_start, MASK: tl.constexpr):
    """From `row_begin` on, query `i` sees every key before this one."""
    end = row_end(i, sq, k_end, band, MASK)
    return tl.minimum(end, bits_start) if BITS & MASK else end


@triton.jit
def key_begin(j, sq, k_end, band, MASK: tl.constexpr):
    """First query that may see key `j` (the inverse of `row_end`); `sq` if there is none."""
    begin = tl.minimum(tl.maximum(j - band.high, 0), sq) if UPPER & MASK else 0
    if PREFIX & MASK:
        begin = tl.where(j < band.prefix, 0, begin)
    return tl.where(j < k_end, begin, sq)


@triton.jit
def key_end(j, sq, band, MASK: tl.constexpr):
    """Neither this query nor any after it sees key `j` (the inverse of `row_begin`)."""
    return tl.minimum(tl.maximum(j - band.low + 1, 0), sq) if LOWER & MASK else sq


@triton.jit
def sure_begin(j, sq, k_end, band, bits_start, MASK: tl.constexpr):
    """From this query up to `key_end`, every query sees key `j` (the inverse of `sure_end`)."""
    return key_begin(j, sq, tl.minimum(k_end, bits_start) if BITS & MASK else k_end, band, MASK)


@triton.jit
def visible(i, j, sq, k_end, band, bits, bits_start, MASK: tl.constexpr, MASKED: tl.constexpr = True):
    """The mask predicate: does query `i` see key `j`, liveness of blocks aside?

    `i` and `j` are int32 of any shapes that broadcast against each other, in either order, so a transposed tile needs no
    second predicate. `bits` is the `Head` of the words of the bits. A tile that is not `MASKED` never reads the result.
    """
    if MASKED:
        see = j < row_end(i, sq, k_end, band, MASK)
        if LOWER & MASK:
            see = see & (j >= i + band.low)
        if BITS & MASK:
            bit = j - bits_start
            word = tl.load(bits.ptr + i.to(tl.int64) * bits.row + (bit >> 5), mask=see & (bit >= 0), other=-1)
            see = see & (((word >> (bit & 31)) & 1) != 0)
    else:
        see = i == i
    return see


@triton.jit
def any_visible(see):
    """Does any query of the tile see any of its keys?"""
    return tl.max(see.to(tl.int32)) != 0
