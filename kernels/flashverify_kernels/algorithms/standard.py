"""Standard attention (Algorithms 0 and 3): the matrices S, P, dP and dS lie in memory."""

import triton.language as tl

from flashverify_kernels.algorithms.tiles import (
    finite,
    head,
    key_count,
    load,
    load_square,
    logits,
    store,
    store_square,
    visible,
)
from flashverify_kernels.device.jit import kernel


@kernel
def scores_kernel(
    q_ptr,
    k_ptr,
    s_ptr,
    lengths_ptr,
    scale_log2,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    d: tl.int32,
    align_end: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Algorithm 0, line 1: one tile of S, `[B heads, sq, sk]` fp32, base 2 and masked. Arguments as in `paper_forward_kernel`."""
    rows, columns = (sq + BLOCK_M - 1) // BLOCK_M, (sk + BLOCK_N - 1) // BLOCK_N
    n = tl.program_id(0) // (rows * columns)
    i = tl.program_id(0) // columns % rows * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    q = load(head(q_ptr, n, sq, d), i, sq, d, BLOCK_D)
    k_end = key_count(lengths_ptr, n // heads, sk)
    k = load(head(k_ptr, n // group, sk, d), j, k_end, d, BLOCK_D)
    z = logits(q, k, i, j, k_end, sq, align_end, scale_log2, CAUSAL)
    store_square(head(s_ptr, n, sq, sk), z, i, j, sq, sk)


@kernel
def softmax_kernel(
    s_ptr,
    p_ptr,
    lse2_ptr,
    lengths_ptr,
    heads: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    align_end: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_S: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Algorithm 0, line 2: P and LSE of one tile of whole rows; BLOCK_S is sk rounded up to a power of two.

    P is exactly 0 where a query does not see a key, also where a logit of its row overflows.
    """
    tiles = (sq + BLOCK_M - 1) // BLOCK_M
    n = tl.program_id(0) // tiles
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_S)
    z = load_square(head(s_ptr, n, sq, sk), i, j, sq, sk, float("-inf"))
    m_i = tl.max(z, 1)
    p = tl.exp2(z - finite(m_i)[:, None])
    l_i = tl.sum(p, 1)
    divisor = tl.where(l_i == 0.0, 1.0, l_i)
    see = visible(i, j, key_count(lengths_ptr, n // heads, sk), sq, align_end, CAUSAL)
    store_square(head(p_ptr, n, sq, sk), tl.where(see, p / divisor[:, None], 0.0), i, j, sq, sk)
    tl.store(head(lse2_ptr, n, sq, 1) + i, m_i + tl.log2(divisor), mask=i < sq)


@kernel
def product_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    lengths_ptr,
    scale,
    heads: tl.int32,
    group_b: tl.int32,
    rows: tl.int32,
    depth: tl.int32,
    width: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_W: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    """C = scale A B, a tile of rows at a time: O = P V, dQ = dS K, and with `TRANSPOSED` dV = P^T dO, dK = dS^T Q.

    Args:
        a_ptr: `[n, rows, depth]`, or `[n, depth, rows]` where it is transposed.
        b_ptr: `[n // group_b, depth, width]`.
        c_ptr: `[n, rows, width]`, written.
        lengths_ptr: `[n // heads]` int32: rows of B from there on are not read; None reads all.
        scale: factor of the product.
        heads: matrices of A that share a length.
        group_b: matrices of A that share one of B.
        rows: of C.
        depth: length of the products.
        width: columns of C.
        BLOCK_M: rows per tile.
        BLOCK_N: depth per tile.
        BLOCK_W: width rounded up to a power of two.
        TRANSPOSED: whether A is stored transposed.
    """
    tiles = (rows + BLOCK_M - 1) // BLOCK_M
    n = tl.program_id(0) // tiles
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    a_ptr, b_ptr = head(a_ptr, n, rows, depth), head(b_ptr, n // group_b, depth, width)
    limit = key_count(lengths_ptr, n // heads, depth)
    acc = tl.full([BLOCK_M, BLOCK_W], 0.0, tl.float32)
    for n0 in range(0, depth, BLOCK_N):
        j = n0 + tl.arange(0, BLOCK_N)
        b = load(b_ptr, j, limit, width, BLOCK_W)
        if TRANSPOSED:
            a = tl.trans(load_square(a_ptr, j, i, depth, rows, 0.0))
        else:
            a = load_square(a_ptr, i, j, rows, depth, 0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    store(head(c_ptr, n, rows, width), acc * scale, i, rows, width, BLOCK_W)


@kernel
def weight_gradient_kernel(
    do_ptr,
    v_ptr,
    dp_ptr,
    lengths_ptr,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    dv: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Algorithm 3, line 2: one tile of dP = dO V^T, `[B heads, sq, sk]` fp32."""
    rows, columns = (sq + BLOCK_M - 1) // BLOCK_M, (sk + BLOCK_N - 1) // BLOCK_N
    n = tl.program_id(0) // (rows * columns)
    i = tl.program_id(0) // columns % rows * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)
    do = load(head(do_ptr, n, sq, dv), i, sq, dv, BLOCK_DV)
    k_end = key_count(lengths_ptr, n // heads, sk)
    v = load(head(v_ptr, n // group, sk, dv), j, k_end, dv, BLOCK_DV)
    store_square(head(dp_ptr, n, sq, sk), tl.dot(do, tl.trans(v), input_precision="ieee"), i, j, sq, sk)


@kernel
def score_gradient_kernel(
    p_ptr,
    dp_ptr,
    ds_ptr,
    lengths_ptr,
    heads: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    align_end: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_S: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Algorithm 3, line 3: dS = P (dP - sum P dP) of one tile of whole rows; exact zeros where a query does not see a key."""
    tiles = (sq + BLOCK_M - 1) // BLOCK_M
    n = tl.program_id(0) // tiles
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.arange(0, BLOCK_S)
    see = visible(i, j, key_count(lengths_ptr, n // heads, sk), sq, align_end, CAUSAL)
    p = load_square(head(p_ptr, n, sq, sk), i, j, sq, sk, 0.0).to(tl.float32)
    dp = load_square(head(dp_ptr, n, sq, sk), i, j, sq, sk, 0.0)
    delta = tl.sum(tl.where(see, p * dp, 0.0), 1)
    ds = tl.where(see, p * (dp - delta[:, None]), 0.0)
    store_square(head(ds_ptr, n, sq, sk), ds, i, j, sq, sk)
