"""Addresses: from (sequence, head, row, channel) to pointers. Every load has a mask and a fill.

Heads are found by int64 offsets, rows within a head by int32 ones only where the host has seen that they fit (`ALIGNED`).

A sequence is a batch of its own, or one of several packed into one batch (its batch strides are 0); `span` says where its
rows lie, `declared` how many of them count.
"""

import triton
import triton.language as tl

from flashverify_kernels.device.arguments import Head


@triton.jit
def span(cu_ptr, b, rows):
    """First row and number of rows of sequence `b`: packed sequences follow each other, others have `rows` rows of their own.

    Args:
        cu_ptr: `[n + 1]` int32 cumulative lengths of packed sequences, or None.
        b: number of the sequence.
        rows: rows of a sequence that is not packed.
    """
    first = b * 0
    if cu_ptr is not None:
        first = tl.load(cu_ptr + b)
        rows = tl.load(cu_ptr + b + 1) - first
    return first, rows


@triton.jit
def declared(lengths_ptr, b, rows):
    """How many of the `rows` rows of sequence `b` count: its length, clamped to [0, rows], or all where there are no lengths."""
    return rows if lengths_ptr is None else tl.minimum(tl.maximum(tl.load(lengths_ptr + b), 0), rows)


@triton.jit
def rows_of(cu_ptr, lengths_ptr, b, rows):
    """Where the rows of sequence `b` lie: the first one, their number, and the end of those that count; see `span`, `declared`."""
    first, rows = span(cu_ptr, b, rows)
    return first, rows, declared(lengths_ptr, b, rows)


@triton.jit
def head_of(x, b, h, first, ALIGNED: tl.constexpr):
    """The `Head` of the view `x` that starts at row `first` of head `h` of batch `b`; 16-byte aligned where `ALIGNED`."""
    # one sum: an addition of 0 would be folded away together with what is said about the alignment of its result
    ptr = x.ptr + (b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head + first.to(tl.int64) * x.row)
    if ALIGNED:
        ptr = tl.multiple_of(ptr, 16)
    return Head(ptr, x.row)


@triton.jit
def locate(head, rows, row_limit, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr):
    """Pointers and mask of the tile of `rows` by all channels, `[len(rows), BLOCK_C]`.

    Args:
        head: the `Head` that the rows are of.
        rows: row numbers.
        row_limit: rows from here on are masked.
        channels8: number of channels divided by 8, a form from which the compiler sees the divisibility.
        BLOCK_C: channels of the tile, a power of two.
        EVEN: whether the head has exactly `BLOCK_C` channels.
        ALIGNED: whether every row starts on a multiple of 8 elements, and offsets within a head fit an int32.
    """
    c = tl.arange(0, BLOCK_C)[None, :]  # [1, BLOCK_C]
    if ALIGNED:
        narrow = head.row.to(tl.int32)
        offset = rows[:, None] * narrow  # flashverify: int32-offset is declared, ALIGNED says that it fits
        offset = tl.multiple_of(offset, [8, 8])
    else:
        offset = rows.to(tl.int64)[:, None] * head.row
    keep = rows[:, None] < row_limit  # [len(rows), 1]
    if not EVEN:
        keep = keep & (c < channels8 * 8)
    return head.ptr + offset + c, keep


@triton.jit
def load_tile(head, rows, row_limit, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr):
    """Load a tile, `[len(rows), BLOCK_C]`; rows and channels outside the tensor are 0 and are not read."""
    ptrs, keep = locate(head, rows, row_limit, channels8, BLOCK_C, EVEN, ALIGNED)
    return tl.load(ptrs, mask=keep, other=0.0)


@triton.jit
def fetch_tile(tiles, b, h, first, ROWS: tl.constexpr, BLOCK_C: tl.constexpr):
    """Fetch the tile of the rows from `first` on, `[ROWS, BLOCK_C]`, by its descriptor; rows and channels outside the tensor are 0."""
    return tl.reshape(tiles.load([b, h, first, 0]), [ROWS, BLOCK_C])


@triton.jit
def store_tile(
    head, tile, rows, row_limit, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr
):
    """Store a tile, rounded once to the type of the tensor."""
    ptrs, keep = locate(head, rows, row_limit, channels8, BLOCK_C, EVEN, ALIGNED)
    tl.store(ptrs, tile.to(head.ptr.dtype.element_ty), mask=keep)


@triton.jit
def row_numbers(stats, b, h, first, i):
    """The numbers of the rows `first + i` among those that the `Statistics` have, `[len(i)]` int64."""
    return b.to(tl.int64) * stats.batch + h.to(tl.int64) * stats.head + first + i


@triton.jit
def row_ptrs(ptr, stats, b, h, first, i):
    """Pointers to the rows `first + i` of `ptr`, one of the `Statistics` of the rows, `[len(i)]`."""
    return ptr + b.to(tl.int64) * stats.batch + h.to(tl.int64) * stats.head + first + i
