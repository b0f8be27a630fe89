"""Addresses: from (batch, head, row, channel) to pointers. Every offset is int64, every load has a mask and a fill."""

import triton
import triton.language as tl


@triton.jit
def head_ptr(ptr, b, h, stride_b, stride_h, ALIGNED: tl.constexpr):
    """Pointer to the first element of head `h` of batch `b`; 16-byte aligned where `ALIGNED`."""
    ptr += b.to(tl.int64) * stride_b + h.to(tl.int64) * stride_h
    if ALIGNED:
        ptr = tl.multiple_of(ptr, 16)
    return ptr


@triton.jit
def locate(
    ptr, rows, row_limit, stride_row, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr
):
    """Pointers and mask of the tile of `rows` by all channels, `[len(rows), BLOCK_C]`.

    Args:
        ptr: first element of the head.
        rows: row numbers.
        row_limit: rows from here on are masked.
        stride_row: distance of two rows, elements.
        channels8: number of channels divided by 8, a form from which the compiler sees the divisibility.
        BLOCK_C: channels of the tile, a power of two.
        EVEN: whether the head has exactly `BLOCK_C` channels.
        ALIGNED: whether every row starts on a multiple of 8 elements.
    """
    c = tl.arange(0, BLOCK_C)[None, :]
    offset = rows.to(tl.int64)[:, None] * stride_row
    if ALIGNED:
        offset = tl.multiple_of(offset, [8, 8])
    keep = rows[:, None] < row_limit
    if not EVEN:
        keep = keep & (c < channels8 * 8)
    return ptr + offset + c, keep


@triton.jit
def load_tile(
    ptr, rows, row_limit, stride_row, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr
):
    """Load a tile; rows and channels outside the tensor are 0 and are not read."""
    ptrs, keep = locate(ptr, rows, row_limit, stride_row, channels8, BLOCK_C, EVEN, ALIGNED)
    return tl.load(ptrs, mask=keep, other=0.0)


@triton.jit
def store_tile(
    ptr, tile, rows, row_limit, stride_row, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr
):
    """Store a tile, rounded once to the type of the tensor."""
    ptrs, keep = locate(ptr, rows, row_limit, stride_row, channels8, BLOCK_C, EVEN, ALIGNED)
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=keep)


@triton.jit
def row_ptrs(ptr, b, h, heads, sq, i):
    """Pointers into a contiguous `[B, heads, sq]` tensor of row statistics."""
    return ptr + (b.to(tl.int64) * heads + h) * sq + i
