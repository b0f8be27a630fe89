"""Tiles of contiguous tensors, shared by the kernels of this package."""

import triton
import triton.language as tl

from flashverify_kernels.device.address import load_tile, store_tile
from flashverify_kernels.device.mask import diagonal, visible


@triton.jit
def head(ptr, n, rows, width):
    """Pointer to matrix `n` of a contiguous `[..., rows, width]` tensor."""
    return ptr + n.to(tl.int64) * rows * width


@triton.jit
def load(ptr, i, limit, width, BLOCK: tl.constexpr):
    """Rows `i` of a contiguous `[limit, width]` matrix, `[len(i), BLOCK]`; 0 outside."""
    return load_tile(ptr, i, limit, width, width // 8, BLOCK, False, False)


@triton.jit
def store(ptr, tile, i, limit, width, BLOCK: tl.constexpr):
    """Write such rows, rounded to the type of the matrix."""
    store_tile(ptr, tile, i, limit, width, width // 8, BLOCK, False, False)


@triton.jit
def load_square(ptr, i, j, rows, columns, other):
    """The tile `[len(i), len(j)]` of a contiguous `[rows, columns]` matrix; `other` outside."""
    keep = (i < rows)[:, None] & (j < columns)[None, :]
    return tl.load(ptr + i.to(tl.int64)[:, None] * columns + j[None, :], mask=keep, other=other)


@triton.jit
def store_square(ptr, tile, i, j, rows, columns):
    """Write such a tile, rounded to the type of the matrix."""
    keep = (i < rows)[:, None] & (j < columns)[None, :]
    tl.store(ptr + i.to(tl.int64)[:, None] * columns + j[None, :], tile.to(ptr.dtype.element_ty), mask=keep)


@triton.jit
def logits(q, k, i, j, k_end, sq, sk, align_end, scale_log2, MASK: tl.constexpr):
    """The base-2 logits of a tile, -inf where query `i` does not see key `j`, from `k_end` on none; the dot is exact to fp32 rounding."""
    diag = diagonal(sq, sk, k_end, align_end, MASK)
    see = visible(i[:, None], j[None, :], sq, k_end, diag, None, MASK, True)
    z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
    return tl.where(see, z, float("-inf"))


@triton.jit
def finite(m):
    """A pivot: `m`, or 0 for a row without keys, so that -inf is never subtracted from -inf."""
    return tl.where(m == float("-inf"), 0.0, m)
