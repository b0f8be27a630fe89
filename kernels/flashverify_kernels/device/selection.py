"""Addresses of attention whose keys are chosen by index: the forward and dQ walk the blocks of a list, dK and dV the lists of a block.

A list belongs to `rows` queries in a row, of all heads of a kv head (or of all kv heads). The queries of a list and the members of the
group are packed into the rows of its tiles: row r of list n is query n * rows + r // group of member r % group. The lists are those of
`selection.prepared`: every block once, in front, and `counts` says how many. Where tiles divide blocks, or the packed rows of a list, one
number serves a tile.
"""

from typing import Annotated, Any, NamedTuple

import triton
import triton.language as tl

from flashverify_kernels.device.arguments import Int32s

Int64s = Annotated[Any, "*i64"]
"""An int64 tensor, or None."""


class SelectedBlocks(NamedTuple):
    """The lists of the blocks that rows see; what a kernel does not read is None.

    Attributes:
        lists: `[B or 1, kv_heads or 1, lists, entries]` contiguous, every block once, in front.
        counts: `[B or 1, kv_heads or 1, lists]` contiguous, blocks of each list.
        namers: `[B or 1, kv_heads or 1, entries]` contiguous, the lists that name block 0, in order, then those of block 1, and so on.
        begins: `[B or 1, kv_heads or 1, blocks + 1]` int64 contiguous, where the lists of each block begin among the namers.
        batch: lists of this many kv heads belong to a sequence; 0 where all sequences share them.
        head: 1 where every kv head has its own lists, else 0.
        entries: of a list, or of the namers of a kv head.
        rows: queries that share a list.
        keys: keys of a block.
    """

    lists: Int32s
    counts: Int32s
    namers: Int32s
    begins: Int64s
    batch: tl.int64
    head: tl.int64
    entries: tl.int64
    rows: tl.int32
    keys: tl.int32


class SelectedSizes(NamedTuple):
    """Sizes of the problem, as of `arguments.Sizes`; `align_end` is 1 where the causal diagonal ends at the last key."""

    heads: tl.int32
    kv_heads: tl.int32
    group: tl.int32
    sq: tl.int32
    sk: tl.int32
    d8: tl.int32
    dv8: tl.int32
    align_end: tl.int32


@triton.jit
def tile_of_list(pid, selected, sizes, BLOCK_M: tl.constexpr):
    """`(b, hk, n, i, h, inside)` of the tile of packed rows of a program: sequence, kv head, list, queries, query heads, and which exist."""
    row_tiles = tl.cdiv(sizes.group * selected.rows, BLOCK_M)
    lists = tl.cdiv(sizes.sq, selected.rows)
    r = pid % row_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid // row_tiles % lists
    bh = pid // row_tiles // lists
    i = n * selected.rows + r // sizes.group  # flashverify: int32-offset is declared, it is a row of the sequence
    b = bh // sizes.kv_heads
    hk = bh % sizes.kv_heads
    inside = (r < sizes.group * selected.rows) & (i < sizes.sq)
    return b, hk, n, i, hk * sizes.group + r % sizes.group, inside


@triton.jit
def row_offsets(view, b, h, i):
    """Offsets of the rows `i` of the heads `h` of a view, elements."""
    return b.to(tl.int64) * view.batch + h.to(tl.int64) * view.head + i.to(tl.int64) * view.row


@triton.jit
def head_ptr(view, b, hk):
    """Pointer to the first row of a kv head."""
    return view.ptr + b.to(tl.int64) * view.batch + hk.to(tl.int64) * view.head


@triton.jit
def list_number(selected, b, hk, n, lists):
    """The number of a list in the tables, int64."""
    return (b.to(tl.int64) * selected.batch + hk.to(tl.int64) * selected.head) * lists + n


@triton.jit
def named_keys(list_ptr, lane, count, selected, k_end, BLOCK_N: tl.constexpr, WHOLE: tl.constexpr):
    """The keys of a tile of lanes of a list, and which of them are named and count; `WHOLE`: no tile crosses the end of a block."""
    if not WHOLE:
        lane = lane + tl.arange(0, BLOCK_N)
    number = tl.load(list_ptr + lane // selected.keys, mask=lane < count * selected.keys, other=-1)
    j = number * selected.keys + lane % selected.keys  # flashverify: int32-offset is declared, a key of the sequence
    if WHOLE:
        j = j + tl.arange(0, BLOCK_N)
    return j, (number >= 0) & (j < k_end)


@triton.jit
def naming_rows(namers_ptr, lane, count, hk, selected, sizes, BLOCK_M: tl.constexpr, WHOLE: tl.constexpr):
    """`(i, h, inside)` of a tile of packed rows of the lists that name a block: queries, query heads, and which exist.

    Args:
        namers_ptr: the lists.
        lane: first packed row of the tile, of all lists one behind the other.
        count: lists.
        hk: kv head.
        selected: the lists of all blocks.
        sizes: of the problem.
        BLOCK_M: packed rows of the tile.
        WHOLE: whether no tile crosses the end of a list.
    """
    packed = sizes.group * selected.rows
    if not WHOLE:
        lane = lane + tl.arange(0, BLOCK_M)
    n = tl.load(namers_ptr + lane // packed, mask=lane < count * packed, other=0)
    r = lane % packed
    if WHOLE:
        r = r + tl.arange(0, BLOCK_M)
    i = n * selected.rows + r // sizes.group  # flashverify: int32-offset is declared, it is a row of the sequence
    return i, hk * sizes.group + r % sizes.group, (lane < count * packed) & (i < sizes.sq)


@triton.jit
def seen_pairs(i, j, inside, keep, shift, CAUSAL: tl.constexpr):
    """Which pairs of the queries `i` and the keys `j`, shaped to broadcast, take part."""
    see = inside & keep
    if CAUSAL:
        see = see & (j <= i + shift)
    return see
