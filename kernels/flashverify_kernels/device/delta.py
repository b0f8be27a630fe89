import triton.language as tl

from flashverify_kernels.device.address import declared, head_ptr, load_tile, row_ptrs, span
from flashverify_kernels.device.jit import kernel


@kernel
def delta_kernel(
    o_ptr,
    do_ptr,
    lse2_ptr,
    dlse_ptr,
    delta_ptr,
    cu_q_ptr,
    q_lengths_ptr,
    heads: tl.int32,
    sq: tl.int32,
    dv8: tl.int32,
    stride_ob: tl.int64,
    stride_oh: tl.int64,
    stride_os: tl.int64,
    stride_dob: tl.int64,
    stride_doh: tl.int64,
    stride_dos: tl.int64,
    stride_rowb: tl.int64,
    stride_rowh: tl.int64,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Compute delta = rowsum(dO * O) - dLSE in fp32, from the stored O; exactly 0 for a row without keys.

    One program per (sequence, query head, tile of rows). Arguments as in `forward_kernel`; `dlse_ptr` is the gradient of
    the natural LSE, `[B, heads, sq]` fp32, or None.
    """
    tiles = tl.cdiv(sq, BLOCK_M)
    bh = tl.program_id(0) // tiles
    b = bh // heads
    h = bh % heads
    q0, sq = span(cu_q_ptr, b, sq)
    q_end = declared(q_lengths_ptr, b, sq)
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    o_ptr = head_ptr(o_ptr, b, h, q0, stride_ob, stride_oh, stride_os, ALIGNED)
    do_ptr = head_ptr(do_ptr, b, h, q0, stride_dob, stride_doh, stride_dos, ALIGNED)
    o = load_tile(o_ptr, i, q_end, stride_os, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    do = load_tile(do_ptr, i, q_end, stride_dos, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    if dlse_ptr is not None:
        delta -= tl.load(row_ptrs(dlse_ptr, b, h, q0, stride_rowb, stride_rowh, i), mask=i < q_end, other=0.0)
    lse2 = tl.load(row_ptrs(lse2_ptr, b, h, q0, stride_rowb, stride_rowh, i), mask=i < q_end, other=float("-inf"))
    delta = tl.where(lse2 == float("-inf"), 0.0, delta)
    tl.store(row_ptrs(delta_ptr, b, h, q0, stride_rowb, stride_rowh, i), delta, mask=i < sq)
