"""The mask: which key `j` a query `i` sees. Everything else about masks is derived from the functions here.

A mask is described by `(sq, k_end, diag)`: the number of queries, the number of keys of this batch, and the shift of
the diagonal. Query i sees no key from `row_end(i)` on and every key before `sure_end(i)`; between the two, a bit decides.
Both limits never decrease with i, which is all that the tile schedule relies on.

| mask | row_end(i) | sure_end(i) |
|---|---|---|
| `NONE` | k_end | k_end |
| `CAUSAL` | min(i + 1 + diag, k_end) | the same |
| `TREE` | min(i + 1 + diag, k_end): a node comes after its ancestors | min(diag, k_end): the prefix |
"""

import triton
import triton.language as tl

NONE = tl.constexpr(0)
CAUSAL = tl.constexpr(1)
TREE = tl.constexpr(2)


@triton.jit
def key_count(lengths_ptr, b, sk):
    """Number of keys of batch `b`: its key length (clamped to [0, sk]), or all `sk` where there are no lengths."""
    return sk if lengths_ptr is None else tl.minimum(tl.maximum(tl.load(lengths_ptr + b), 0), sk)


@triton.jit
def diagonal(sq, sk, k_end, align_end, MASK: tl.constexpr):
    """The `diag` of a mask: the tree's prefix, or 0 (`align_end` = 0: top-left), or k_end - sq (1: bottom-right)."""
    return sk - sq if MASK == TREE else align_end * (k_end - sq)


@triton.jit
def row_end(i, sq, k_end, diag, MASK: tl.constexpr):
    """First key that query `i` does not see, nor any after it; not positive for padded rows and for rows without keys."""
    end = k_end if MASK == NONE else tl.minimum(i + 1 + diag, k_end)
    return tl.where(i < sq, end, 0)


@triton.jit
def sure_end(i, sq, k_end, diag, MASK: tl.constexpr):
    """Query `i` sees every key before this one."""
    return tl.where(i < sq, tl.minimum(diag, k_end), 0) if MASK == TREE else row_end(i, sq, k_end, diag, MASK)


@triton.jit
def first_row(j, sq, k_end, diag, MASK: tl.constexpr):
    """First query that may see key `j` (the inverse of `row_end`); `sq` if there is none."""
    first = 0 if MASK == NONE else tl.minimum(tl.maximum(j - diag, 0), sq)
    return tl.where(j < k_end, first, sq)


@triton.jit
def first_sure_row(j, sq, k_end, diag, MASK: tl.constexpr):
    """First query from which on every query sees all keys up to and including `j` (the inverse of `sure_end`)."""
    return tl.where(j < tl.minimum(diag, k_end), 0, sq) if MASK == TREE else first_row(j, sq, k_end, diag, MASK)


@triton.jit
def visible(i, j, sq, k_end, diag, bits_ptr, MASK: tl.constexpr, MASKED: tl.constexpr):
    """The mask predicate: does query `i` see key `j`?

    `i` and `j` broadcast against each other in either order, so a transposed tile needs no second predicate.
    A tile that is not `MASKED` never reads the result.
    """
    if MASKED:
        see = j < row_end(i, sq, k_end, diag, MASK)
        if MASK == TREE:
            node = j - diag
            words = (sq + 31) // 32
            word = tl.load(bits_ptr + i.to(tl.int64) * words + (node >> 5), mask=see & (node >= 0), other=0)
            see = see & ((node < 0) | (((word >> (node & 31)) & 1) != 0))
    else:
        see = i == i
    return see


@triton.jit
def any_visible(see):
    """Does any query of the tile see any of its keys?"""
    return tl.max(see.to(tl.int32)) != 0
