"""Addresses of rows that do not lie one stride apart: keys in the pages of a cache, query heads packed into one tile.

A key's place is (page, slot). Without pages there is one page, and the slot is the key's number. An entry of the page table is
read only for a key that is itself read, so entries beyond the keys of a sequence may hold anything.
"""

import triton
import triton.language as tl

from flashverify_kernels.device.arguments import Head

CONTIGUOUS = tl.constexpr(0)
SCATTERED = tl.constexpr(1)
WHOLE_TILES = tl.constexpr(2)


@triton.jit
def places(table_ptr, n0, j, keep, page_size, PAGED: tl.constexpr):
    """Page and slot of the keys `j` of the tile that starts at key `n0`.

    Args:
        table_ptr: pages of the sequence, int32.
        n0: first key of the tile; where `WHOLE_TILES`, its page holds a key that is read.
        j: keys.
        keep: which of them are read.
        page_size: keys per page.
        PAGED: `CONTIGUOUS`: no pages. `SCATTERED`: any page size. `WHOLE_TILES`: no tile crosses the end of a page.
    """
    if PAGED == CONTIGUOUS:
        page = n0 * 0
        slot = j
    elif PAGED == WHOLE_TILES:
        page = tl.load(table_ptr + n0 // page_size)
        start = n0 // page_size * page_size  # flashverify: int32-offset is declared, it is a key of the sequence
        slot = j - start
    else:
        page = tl.load(table_ptr + j // page_size, mask=keep, other=0)
        slot = j % page_size
    return page, slot


@triton.jit
def place_offsets(page, slot, stride_page, stride_slot, PAGED: tl.constexpr):
    """Offsets of keys at `places`, elements."""
    offset = slot.to(tl.int64) * stride_slot
    if PAGED != CONTIGUOUS:
        offset += page.to(tl.int64) * stride_page
    return offset


@triton.jit
def heads_of_rows(x, b, h):
    """The `Head` of the view `x` for rows of several heads `h` of batch `b`: a pointer per row, `[len(h), 1]`."""
    return Head(x.ptr + (b.to(tl.int64) * x.batch + h.to(tl.int64) * x.head)[:, None], x.row)


@triton.jit
def row_tile(ptr, offset, keep, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr):
    """Pointers and mask of a tile whose rows start at `offset` (elements, int64) and exist where `keep`.

    `channels8`, `BLOCK_C`, `EVEN` and `ALIGNED` as in `address.locate`.
    """
    c = tl.arange(0, BLOCK_C)[None, :]
    offset = offset[:, None]
    keep = keep[:, None]
    if not EVEN:
        keep = keep & (c < channels8 * 8)
    ptrs = ptr + offset + c
    if ALIGNED:  # stated of the tile: what is stated of the pointer, an argument of this function, is lost
        ptrs = tl.multiple_of(ptrs, [16, 16])
    return ptrs, keep


@triton.jit
def load_rows(ptr, offset, keep, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr):
    """Load a tile of rows at `offset`; rows and channels outside the tensor are 0 and are not read."""
    ptrs, keep = row_tile(ptr, offset, keep, channels8, BLOCK_C, EVEN, ALIGNED)
    return tl.load(ptrs, mask=keep, other=0.0)


@triton.jit
def store_rows(ptr, tile, offset, keep, channels8, BLOCK_C: tl.constexpr, EVEN: tl.constexpr, ALIGNED: tl.constexpr):
    """Store a tile of rows at `offset`, rounded once to the type of the tensor."""
    ptrs, keep = row_tile(ptr, offset, keep, channels8, BLOCK_C, EVEN, ALIGNED)
    tl.store(ptrs, tile.to(ptr.dtype.element_ty), mask=keep)
