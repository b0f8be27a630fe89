"""Tiles of contiguous tensors, and their masked logits; shared by the kernels of this package, which share nothing with others."""

import triton
import triton.language as tl


@triton.jit
def key_count(lengths_ptr, b, sk):
    """Number of keys of batch `b`: its key length (clamped to [0, sk]), or all `sk` where there are no lengths."""
    return sk if lengths_ptr is None else tl.minimum(tl.maximum(tl.load(lengths_ptr + b), 0), sk)


@triton.jit
def head(ptr, n, rows, width):
    """Pointer to matrix `n` of a contiguous `[..., rows, width]` tensor."""
    return ptr + n.to(tl.int64) * rows * width


@triton.jit
def place(cu_ptr, n, heads, rows):
    """First row of matrix `n`, counted through all matrices, and its number of rows; every head has `rows` rows of all sequences.

    Args:
        cu_ptr: `[sequences + 1]` int32 cumulative rows of packed sequences, or None where each matrix has `rows` rows.
        n: sequence times heads, plus head.
        heads: of a sequence.
        rows: of a head.
    """
    if cu_ptr is None:
        first, own = n.to(tl.int64) * rows, rows
    else:
        start = tl.load(cu_ptr + n // heads)
        first = (n % heads).to(tl.int64) * rows + start
        own = tl.load(cu_ptr + n // heads + 1) - start
    return first, own


@triton.jit
def load(ptr, i, limit, width, BLOCK: tl.constexpr):
    """Rows `i` of a contiguous `[limit, width]` matrix, `[len(i), BLOCK]`; 0 outside."""
    return load_square(ptr, i, tl.arange(0, BLOCK), limit, width, 0.0)


@triton.jit
def store(ptr, tile, i, limit, width, BLOCK: tl.constexpr):
    """Write such rows, rounded to the type of the matrix."""
    store_square(ptr, tile, i, tl.arange(0, BLOCK), limit, width)


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
def visible(i, j, k_end, sq, align_end, CAUSAL: tl.constexpr):
    """Which queries `i` see which keys `j`, `[len(i), len(j)]` bool; from `k_end` on none is seen."""
    see = (i < sq)[:, None] & (j < k_end)[None, :]
    if CAUSAL:
        see = see & (j[None, :] <= i[:, None] + align_end * (k_end - sq))
    return see


@triton.jit
def logits(q, k, i, j, k_end, sq, align_end, scale_log2, CAUSAL: tl.constexpr):
    """The base-2 logits of a tile, -inf where query `i` does not see key `j`, from `k_end` on none; the dot is exact to fp32 rounding."""
    see = visible(i, j, k_end, sq, align_end, CAUSAL)
    z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
    return tl.where(see, z, float("-inf"))


@triton.jit
def kept(i, j, n, seed, offset, threshold):
    """Which pairs of matrix `n` dropout keeps, `[len(i), len(j)]` bool.

    Those whose word j % 4 of Philox4x32-10, with key `seed` and counter (j // 4, i, n, offset), is at least `threshold`.
    """
    w0, w1, w2, w3 = tl.philox(seed.to(tl.uint64), (j // 4)[None, :], i[:, None], n.to(tl.uint32), offset.to(tl.uint32))
    part = (j % 4)[None, :]
    word = tl.where(part == 0, w0, tl.where(part == 1, w1, tl.where(part == 2, w2, w3)))
    return word >= threshold.to(tl.uint32)


@triton.jit
def finite(m):
    """A pivot: `m`, or 0 for a row without keys, so that -inf is never subtracted from -inf."""
    return tl.where(m == float("-inf"), 0.0, m)


@triton.jit
def row_lse2(m_ptr, l_ptr, i, sq):
    """LSE of rows `i` in base 2, from the maximum and the row sum in memory; 0 for a row without keys."""
    m = tl.load(m_ptr + i, mask=i < sq, other=float("-inf"))
    row_sum = tl.load(l_ptr + i, mask=i < sq, other=0.0)
    return finite(m) + tl.log2(tl.where(row_sum == 0.0, 1.0, row_sum))


@triton.jit
def live(live_ptr, n, m0, n0, block_rows, block_keys, sq, sk):
    """Whether the block of matrix `n` that holds query `m0` and key `n0` is live; without a pattern every one is."""
    if live_ptr is None:
        alive = True
    else:
        rows, columns = (sq + block_rows - 1) // block_rows, (sk + block_keys - 1) // block_keys
        at = (n.to(tl.int64) * rows + m0 // block_rows) * columns + n0 // block_keys
        alive = tl.load(live_ptr + at) != 0
    return alive
