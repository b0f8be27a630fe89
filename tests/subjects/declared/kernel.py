"""A small Triton forward: packed or dense sequences, causal at the last key or at the first, a left window, two tile sizes."""

import triton
import triton.language as tl


@triton.jit
def forward(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    cu_q_ptr,
    cu_k_ptr,
    scale_log2,
    left,
    group,
    rows_of_lse,
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    v_batch,
    v_head,
    v_row,
    o_batch,
    o_head,
    o_row,
    PACKED: tl.constexpr,
    AT_END: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    LEAK: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    tile, head, sequence = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first_q = tl.load(cu_q_ptr + sequence)
    first_k = tl.load(cu_k_ptr + sequence)
    len_q = tl.load(cu_q_ptr + sequence + 1) - first_q
    len_k = tl.load(cu_k_ptr + sequence + 1) - first_k
    batch = sequence
    if PACKED:
        batch = sequence * 0
    else:
        first_q = 0
        first_k = 0
        len_q = tl.load(cu_q_ptr + 1)
        len_k = tl.load(cu_k_ptr + 1)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    d, dv = tl.arange(0, D), tl.arange(0, DV)
    inside = rows < len_q
    shift = 0
    if AT_END:
        shift = len_k - len_q
    q_rows = (first_q + rows).to(tl.int64)
    q_ptrs = q_ptr + batch * q_batch + head * q_head + q_rows[:, None] * q_row + d[None, :]
    q = tl.load(q_ptrs, mask=inside[:, None], other=0.0)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DV], tl.float32)
    for start in range(0, len_k, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        here = keys < len_k
        k_rows = (first_k + keys).to(tl.int64)
        k_ptrs = k_ptr + batch * k_batch + (head // group) * k_head + k_rows[:, None] * k_row + d[None, :]
        v_ptrs = v_ptr + batch * v_batch + (head // group) * v_head + k_rows[:, None] * v_row + dv[None, :]
        k = tl.load(k_ptrs, mask=here[:, None], other=0.0)
        v = tl.load(v_ptrs, mask=here[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        seen = here[None, :] & inside[:, None]
        position = rows[:, None] + shift
        if CAUSAL:
            # A tile that begins before the rows of this program counts as one below the diagonal.
            below = (start < tile * BLOCK_M) & LEAK
            seen = seen & ((keys[None, :] <= position) | below)
        if WINDOW:
            seen = seen & (keys[None, :] >= position - left)
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - base[:, None])
        alpha = tl.exp2(m - base)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    o = tl.where(total[:, None] > 0, acc / tl.where(total > 0, total, 1.0)[:, None], 0.0)
    lse = tl.where(total > 0, (m + tl.log2(tl.where(total > 0, total, 1.0))) * 0.6931471805599453, float("-inf"))
    o_ptrs = o_ptr + batch * o_batch + head * o_head + q_rows[:, None] * o_row + dv[None, :]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=inside[:, None])
    lse_head = batch * tl.num_programs(1) + head
    tl.store(lse_ptr + lse_head * rows_of_lse + q_rows, lse, mask=inside)
