"""Forward, dQ and dK/dV of a published walk-through, tensors `[SEQ, HEAD_NUM, HEAD_DIM]`, as they stand there.

Its block pointers are plain pointers here: a boundary check without a padding option, whose lanes outside are undefined, is a
mask without a fill. Row statistics are loaded under `offs_m < SEQ` without a fill, and offsets of statistics are 32 bits wide,
as there. `FILLED` is the variant in which every masked load has the fill 0 that the text takes for granted.
"""

import triton
import triton.language as tl


@triton.jit
def _load(ptrs, mask, FILLED: tl.constexpr):
    return tl.load(ptrs, mask=mask, other=0.0) if FILLED else tl.load(ptrs, mask=mask)


@triton.jit
def _block(base, start, SEQ, STRIDE: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Pointers and boundary check of ROWS rows from `start`; a block pointer has 64-bit offsets."""
    rows = start + tl.arange(0, ROWS)
    ptrs = base + rows.to(tl.int64)[:, None] * STRIDE + tl.arange(0, HEAD_DIM)[None, :]
    return ptrs, (rows < SEQ)[:, None] & (tl.arange(0, HEAD_DIM) < HEAD_DIM)[None, :]


@triton.jit
def fwd_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    sm_scale_log2,
    SEQ,
    HEAD_NUM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DTYPE: tl.constexpr,
    FILLED: tl.constexpr,
):
    """O and the base-2 LSE of one tile of queries."""
    start_m = tl.program_id(0)
    off_head = tl.program_id(1)
    STRIDE: tl.constexpr = HEAD_NUM * HEAD_DIM
    q_base = q_ptr + off_head * HEAD_DIM
    k_base = k_ptr + off_head * HEAD_DIM
    v_base = v_ptr + off_head * HEAD_DIM
    o_base = o_ptr + off_head * HEAD_DIM
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    q_ptrs, q_check = _block(q_base, start_m * BLOCK_M, SEQ, STRIDE, BLOCK_M, HEAD_DIM)
    q = _load(q_ptrs, q_check, FILLED)
    for start_n in range(0, SEQ, BLOCK_N):
        k_ptrs, k_check = _block(k_base, start_n, SEQ, STRIDE, BLOCK_N, HEAD_DIM)
        v_ptrs, v_check = _block(v_base, start_n, SEQ, STRIDE, BLOCK_N, HEAD_DIM)
        k = _load(k_ptrs, k_check, FILLED)
        v = _load(v_ptrs, v_check, FILLED)
        qk = tl.dot(q, tl.trans(k)) * sm_scale_log2
        if start_n + BLOCK_N >= SEQ:
            mask_n = start_n + tl.arange(0, BLOCK_N) < SEQ
            qk = tl.where(mask_n[None, :], qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m_i = m_ij
    acc = acc / l_i[:, None]
    acc = acc.to(DTYPE)
    lse_base = lse_ptr + off_head * SEQ
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    tl.store(lse_base + offs_m, m_i + tl.math.log2(l_i), mask=offs_m < SEQ)
    o_ptrs, o_check = _block(o_base, start_m * BLOCK_M, SEQ, STRIDE, BLOCK_M, HEAD_DIM)
    tl.store(o_ptrs, acc, mask=o_check)


@triton.jit
def bwd_dq_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    dq_ptr,
    lse_ptr,
    delta_ptr,
    sm_scale,
    sm_scale_log2e,
    SEQ,
    HEAD_NUM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DTYPE: tl.constexpr,
    FILLED: tl.constexpr,
):
    """The gradient of one tile of queries."""
    start_m = tl.program_id(0)
    off_h = tl.program_id(1)
    stride_seq: tl.constexpr = HEAD_NUM * HEAD_DIM
    q_base = q_ptr + off_h * HEAD_DIM
    k_base = k_ptr + off_h * HEAD_DIM
    v_base = v_ptr + off_h * HEAD_DIM
    do_base = do_ptr + off_h * HEAD_DIM
    dq_base = dq_ptr + off_h * HEAD_DIM
    q_ptrs, check = _block(q_base, start_m * BLOCK_M, SEQ, stride_seq, BLOCK_M, HEAD_DIM)
    do_ptrs, _ = _block(do_base, start_m * BLOCK_M, SEQ, stride_seq, BLOCK_M, HEAD_DIM)
    q = _load(q_ptrs, check, FILLED)
    do = _load(do_ptrs, check, FILLED)
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    lse = _load(lse_ptr + off_h * SEQ + offs_m, offs_m < SEQ, FILLED)
    delta = _load(delta_ptr + off_h * SEQ + offs_m, offs_m < SEQ, FILLED)
    dq = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    for start_n in range(0, SEQ, BLOCK_N):
        k_ptrs, k_check = _block(k_base, start_n, SEQ, stride_seq, BLOCK_N, HEAD_DIM)
        v_ptrs, v_check = _block(v_base, start_n, SEQ, stride_seq, BLOCK_N, HEAD_DIM)
        k = _load(k_ptrs, k_check, FILLED)
        v = _load(v_ptrs, v_check, FILLED)
        qk = tl.dot(q, tl.trans(k)) * sm_scale_log2e
        if start_n + BLOCK_N >= SEQ:
            mask_n = start_n + tl.arange(0, BLOCK_N) < SEQ
            qk = tl.where(mask_n[None, :], qk, float("-inf"))
        p = tl.math.exp2(qk - lse[:, None])
        dp = tl.dot(do, tl.trans(v))
        ds = p * (dp - delta[:, None]) * sm_scale
        dq = tl.dot(ds.to(k.dtype), k, dq)
    dq_ptrs, _ = _block(dq_base, start_m * BLOCK_M, SEQ, stride_seq, BLOCK_M, HEAD_DIM)
    tl.store(dq_ptrs, dq.to(DTYPE), mask=check)


@triton.jit
def bwd_dk_dv_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    dk_ptr,
    dv_ptr,
    lse_ptr,
    delta_ptr,
    sm_scale,
    sm_scale_log2e,
    SEQ,
    HEAD_NUM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DTYPE: tl.constexpr,
    FILLED: tl.constexpr,
):
    """The gradients of one tile of keys and values."""
    start_n = tl.program_id(0)
    off_h = tl.program_id(1)
    stride_seq: tl.constexpr = HEAD_NUM * HEAD_DIM
    q_base = q_ptr + off_h * HEAD_DIM
    k_base = k_ptr + off_h * HEAD_DIM
    v_base = v_ptr + off_h * HEAD_DIM
    do_base = do_ptr + off_h * HEAD_DIM
    dk_base = dk_ptr + off_h * HEAD_DIM
    dv_base = dv_ptr + off_h * HEAD_DIM
    k_ptrs, check = _block(k_base, start_n * BLOCK_N, SEQ, stride_seq, BLOCK_N, HEAD_DIM)
    v_ptrs, _ = _block(v_base, start_n * BLOCK_N, SEQ, stride_seq, BLOCK_N, HEAD_DIM)
    k = _load(k_ptrs, check, FILLED)
    v = _load(v_ptrs, check, FILLED)
    dk = tl.zeros([BLOCK_N, HEAD_DIM], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD_DIM], dtype=tl.float32)
    for start_m_idx in range(0, SEQ, BLOCK_M):
        offs_m = start_m_idx + tl.arange(0, BLOCK_M)
        q_ptrs, q_check = _block(q_base, start_m_idx, SEQ, stride_seq, BLOCK_M, HEAD_DIM)
        do_ptrs, _ = _block(do_base, start_m_idx, SEQ, stride_seq, BLOCK_M, HEAD_DIM)
        q = _load(q_ptrs, q_check, FILLED)
        do = _load(do_ptrs, q_check, FILLED)
        lse = _load(lse_ptr + off_h * SEQ + offs_m, offs_m < SEQ, FILLED)
        delta = _load(delta_ptr + off_h * SEQ + offs_m, offs_m < SEQ, FILLED)
        qk = tl.dot(q, tl.trans(k)) * sm_scale_log2e
        # as there: start_n is the number of the block, not of its first key
        if start_n + BLOCK_N >= SEQ:
            mask_n = start_n + tl.arange(0, BLOCK_N) < SEQ
            qk = tl.where(mask_n[None, :], qk, float("-inf"))
        p = tl.math.exp2(qk - lse[:, None])
        dv = tl.dot(tl.trans(p).to(do.dtype), do, dv)
        dp = tl.dot(do, tl.trans(v))
        ds = p * (dp - delta[:, None]) * sm_scale
        dk = tl.dot(tl.trans(ds).to(q.dtype), q, dk)
    dk_ptrs, _ = _block(dk_base, start_n * BLOCK_N, SEQ, stride_seq, BLOCK_N, HEAD_DIM)
    tl.store(dk_ptrs, dk.to(DTYPE), mask=check)
    dv_ptrs, _ = _block(dv_base, start_n * BLOCK_N, SEQ, stride_seq, BLOCK_N, HEAD_DIM)
    tl.store(dv_ptrs, dv.to(DTYPE), mask=check)
