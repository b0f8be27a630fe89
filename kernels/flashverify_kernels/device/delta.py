import triton.language as tl

from flashverify_kernels.device.address import head_ptr, load_tile, row_ptrs
from flashverify_kernels.device.jit import kernel


@kernel
def delta_kernel(
    o_ptr,
    do_ptr,
    lse2_ptr,
    dlse_ptr,
    delta_ptr,
    heads: tl.int32,
    sq: tl.int32,
    dv8: tl.int32,
    stride_ob: tl.int64,
    stride_oh: tl.int64,
    stride_os: tl.int64,
    stride_dob: tl.int64,
    stride_doh: tl.int64,
    stride_dos: tl.int64,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Compute delta = rowsum(dO * O) - dLSE in fp32, from the stored O; exactly 0 for a row without keys.

    One program per (batch, query head, tile of rows). Arguments as in `forward_kernel`; `dlse_ptr` is the gradient of
    the natural LSE, `[B, heads, sq]` fp32 contiguous, or None.
    """
    tiles = tl.cdiv(sq, BLOCK_M)
    bh = tl.program_id(0) // tiles
    b = bh // heads
    h = bh % heads
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    o_ptr = head_ptr(o_ptr, b, h, stride_ob, stride_oh, ALIGNED)
    do_ptr = head_ptr(do_ptr, b, h, stride_dob, stride_doh, ALIGNED)
    o = load_tile(o_ptr, i, sq, stride_os, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    do = load_tile(do_ptr, i, sq, stride_dos, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    if dlse_ptr is not None:
        delta -= tl.load(row_ptrs(dlse_ptr, b, h, heads, sq, i), mask=i < sq, other=0.0)
    lse2 = tl.load(row_ptrs(lse2_ptr, b, h, heads, sq, i), mask=i < sq, other=0.0)
    delta = tl.where(lse2 == float("-inf"), 0.0, delta)
    tl.store(row_ptrs(delta_ptr, b, h, heads, sq, i), delta, mask=i < sq)
