"""Merging partial attentions of the same queries over disjoint keys: one weight per partial, forward and backward.

    m     = max_p LSE_p
    l     = sum_p e_p,  e_p = exp(LSE_p - m)    at most the number of partials: nothing overflows
    w_p   = e_p / l                              0 where LSE_p = -inf; all 0 where every partial is empty
    O     = sum_p w_p O_p
    LSE   = m + log(l)

An LSE is in natural units or in base 2: `to_log2` and `from_log2` convert differences of them, so that a huge LSE is never
multiplied. What an empty partial holds as O is never read.
"""

import triton
import triton.language as tl

from flashverify_kernels.device.arguments import PartView, View
from flashverify_kernels.device.jit import kernel


@triton.jit
def row_offsets(r, heads, seq, x):
    """Offsets of the rows `r` of the view `x` of a `[B, heads, seq, ...]` tensor, elements, int64, `[len(r)]`."""
    bh = r // seq
    offset = (bh // heads).to(tl.int64) * x.batch + (bh % heads).to(tl.int64) * x.head
    return offset + (r % seq).to(tl.int64) * x.row


@triton.jit
def channels(ptr, offset, keep, dv8, BLOCK_DV: tl.constexpr, EVEN_DV: tl.constexpr, ALIGNED: tl.constexpr):
    """Pointers and mask of the rows at `offset`, with one more axis for the channels."""
    c = tl.arange(0, BLOCK_DV)
    ptrs = ptr + tl.expand_dims(offset, -1) + c
    keep = tl.expand_dims(keep, -1)
    # stated of the tile, not of its rows: the compiler makes a scalar of a single row and fails on the statement
    if ALIGNED and len(ptrs.shape) == 3:
        ptrs = tl.multiple_of(ptrs, [16, 16, 16])
    elif ALIGNED:
        ptrs = tl.multiple_of(ptrs, [16, 16])
    if not EVEN_DV:
        keep = keep & (c < dv8 * 8)
    return ptrs, keep


@triton.jit
def load_lse(lse_ptr, p, r, parts, rows):
    """LSE of partials `p` and rows `r`, `[len(p), len(r)]`; -inf outside the tensor."""
    keep = (p[:, None] < parts) & (r[None, :] < rows)
    return tl.load(lse_ptr + p.to(tl.int64)[:, None] * rows + r[None, :], mask=keep, other=float("-inf"))


@triton.jit
def load_partials(partials, lse, p, base, dv8, BLOCK_DV: tl.constexpr, EVEN_DV: tl.constexpr, ALIGNED: tl.constexpr):
    """O of partials `p` in fp32, `[len(p), len(base), BLOCK_DV]`; 0, and not read, where a partial is empty."""
    offset = p.to(tl.int64)[:, None] * partials.part + base[None, :]
    ptrs, keep = channels(partials.ptr, offset, lse != float("-inf"), dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    return tl.load(ptrs, mask=keep, other=0.0).to(tl.float32)


@triton.jit
def statistics(lse_ptr, r, parts, rows, to_log2, BLOCK_P: tl.constexpr, BLOCK_M: tl.constexpr):
    """The largest LSE of each row, the pivot of its exponents (0 where every partial is empty) and their sum."""
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    for p0 in range(0, parts, BLOCK_P):
        m = tl.maximum(m, tl.max(load_lse(lse_ptr, p0 + tl.arange(0, BLOCK_P), r, parts, rows), 0))
    pivot = tl.where(m == float("-inf"), 0.0, m)
    total = tl.full([BLOCK_M], 0.0, tl.float32)
    for p0 in range(0, parts, BLOCK_P):
        lse = load_lse(lse_ptr, p0 + tl.arange(0, BLOCK_P), r, parts, rows)
        total += tl.sum(tl.exp2((lse - pivot[None, :]) * to_log2), 0)
    return m, pivot, tl.where(total == 0.0, 1.0, total)


@triton.jit
def merged_rows(
    partials,
    lse_ptr,
    r,
    base,
    pivot,
    total,
    to_log2,
    parts,
    rows,
    dv8,
    BLOCK_P: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """The merged O in fp32, `[BLOCK_M, BLOCK_DV]`."""
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for p0 in range(0, parts, BLOCK_P):
        p = p0 + tl.arange(0, BLOCK_P)
        lse = load_lse(lse_ptr, p, r, parts, rows)
        w = tl.exp2((lse - pivot[None, :]) * to_log2) / total[None, :]
        o = load_partials(partials, lse, p, base, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
        acc += tl.sum(w[:, :, None] * o, 0)
    return acc


@kernel
def merge_kernel(
    partials: PartView,
    lse_ptr,
    merged: View,
    merged_lse_ptr,
    to_log2,
    from_log2,
    lse_scale,
    parts: tl.int32,
    rows: tl.int32,
    heads: tl.int32,
    seq: tl.int32,
    dv8: tl.int32,
    BLOCK_P: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Merge the partials of one tile of rows; a row is a (batch, head, query).

    Arguments, which the backward shares:
        partials: `[parts, B, heads, seq, 8 dv8]`, partial outputs.
        lse_ptr: `[parts, B, heads, seq]` fp32 contiguous.
        merged: `[B, heads, seq, 8 dv8]`, written.
        merged_lse_ptr: `[B, heads, seq]` fp32 contiguous, written.
        to_log2: log2(e) where the LSE of the partials is natural, 1 where it is in base 2.
        from_log2: 1 / `to_log2`.
        lse_scale: factor of the LSE that is written.
        parts: number of partials.
        rows: B * heads * seq.
        heads: number of heads.
        seq: number of queries.
        dv8: channels, in units of 8.
        BLOCK_P: partials per step.
        BLOCK_M: rows per program.
        BLOCK_DV: 8 dv8 rounded up to a power of two.
        EVEN_DV: whether 8 dv8 is BLOCK_DV.
        ALIGNED: whether all strides are multiples of 8 and all pointers are 16-byte aligned.
    """
    r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    base = row_offsets(r, heads, seq, partials)
    m, pivot, total = statistics(lse_ptr, r, parts, rows, to_log2, BLOCK_P, BLOCK_M)
    acc = merged_rows(
        partials,
        lse_ptr,
        r,
        base,
        pivot,
        total,
        to_log2,
        parts,
        rows,
        dv8,
        BLOCK_P,
        BLOCK_M,
        BLOCK_DV,
        EVEN_DV,
        ALIGNED,
    )
    offset = row_offsets(r, heads, seq, merged)
    ptrs, keep = channels(merged.ptr, offset, r < rows, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    tl.store(ptrs, acc.to(merged.ptr.dtype.element_ty), mask=keep)
    tl.store(merged_lse_ptr + r, (m + tl.log2(total) * from_log2) * lse_scale, mask=r < rows)


@kernel
def merge_backward_kernel(
    partials: PartView,
    lse_ptr,
    do_view: View,
    dlse_ptr,
    dpart_ptr,
    dpart_lse_ptr,
    to_log2,
    parts: tl.int32,
    rows: tl.int32,
    heads: tl.int32,
    seq: tl.int32,
    dv8: tl.int32,
    BLOCK_P: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Compute dO_p = w_p dO and dLSE_p = w_p (dO . (O_p - O) + dLSE) of one tile of rows; exactly 0 for an empty partial.

    O is recomputed in fp32 and subtracted before the product, so that nearly equal partials lose nothing. `do_view` is
    `[B, heads, seq, 8 dv8]`, `dlse_ptr` fp32 contiguous or None; `dpart_ptr` (contiguous) and `dpart_lse_ptr` are written,
    either may be None. The others as in `merge_kernel`.
    """
    r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    base = row_offsets(r, heads, seq, partials)
    _, pivot, total = statistics(lse_ptr, r, parts, rows, to_log2, BLOCK_P, BLOCK_M)
    offset = row_offsets(r, heads, seq, do_view)
    do_ptrs, do_keep = channels(do_view.ptr, offset, r < rows, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    do = tl.load(do_ptrs, mask=do_keep, other=0.0).to(tl.float32)
    if dpart_lse_ptr is not None:
        dlse = tl.full([BLOCK_M], 0.0, tl.float32)
        if dlse_ptr is not None:
            dlse = tl.load(dlse_ptr + r, mask=r < rows, other=0.0)
        o = merged_rows(
            partials,
            lse_ptr,
            r,
            base,
            pivot,
            total,
            to_log2,
            parts,
            rows,
            dv8,
            BLOCK_P,
            BLOCK_M,
            BLOCK_DV,
            EVEN_DV,
            ALIGNED,
        )
    for p0 in range(0, parts, BLOCK_P):
        p = p0 + tl.arange(0, BLOCK_P)
        lse = load_lse(lse_ptr, p, r, parts, rows)
        some = lse != float("-inf")
        inside = (p[:, None] < parts) & (r[None, :] < rows)
        index = p.to(tl.int64)[:, None] * rows + r[None, :]
        w = tl.exp2((lse - pivot[None, :]) * to_log2) / total[None, :]
        if dpart_ptr is not None:
            ptrs, keep = channels(dpart_ptr, index * (dv8 * 8), inside, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
            dpart = tl.where(some[:, :, None], w[:, :, None] * do[None, :, :], 0.0)
            tl.store(ptrs, dpart.to(dpart_ptr.dtype.element_ty), mask=keep)
        if dpart_lse_ptr is not None:
            part = load_partials(partials, lse, p, base, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
            change = tl.sum(do[None, :, :] * (part - o[None, :, :]), 2) + dlse[None, :]
            tl.store(dpart_lse_ptr + index, tl.where(some, w * change, 0.0), mask=inside)
