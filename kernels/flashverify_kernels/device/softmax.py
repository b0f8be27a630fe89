"""Softmax in base 2: the online step of the forward, and the weights recomputed by the backward."""

import triton
import triton.language as tl


@triton.jit
def online_step(z, see, m_i, l_i, MASKED: tl.constexpr):
    """Take one tile of base-2 logits into the running maximum and sum.

    A row without any visible key so far keeps m_i = -inf; its pivot is 0, so that -inf is never subtracted from -inf.
    The kernel is compiled without contraction: were the product inside z fused with the subtraction, z - m_i at the maximum
    would be the rounding error of m_i, up to 2^-24 |m_i|, and its exp2 overflows from |m_i| = 2^31 on.

    Args:
        z: `[BLOCK_M, BLOCK_N]` fp32, logits times log2(e).
        see: mask of the tile, read only where `MASKED`.
        m_i: `[BLOCK_M]` fp32, running maximum of z.
        l_i: `[BLOCK_M]` fp32, running sum of exp2(z - m_i).
        MASKED: whether the tile needs its mask.

    Returns:
        `(p, m_i, l_i, alpha)`: p = exp2(z - m_i) in fp32, the new m_i and l_i, and the factor of everything accumulated so far.
    """
    if MASKED:
        z = tl.where(see, z, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(z, 1))
    pivot = tl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new
    p = tl.exp2(z - pivot[:, None])
    alpha = tl.exp2(m_i - pivot)
    return p, m_new, l_i * alpha + tl.sum(p, 1), alpha


@triton.jit
def take_sink(m_i, l_i, sink2):
    """Take a sink into the running maximum and sum: one more column, without a value, in every row that sees a key.

    A row whose maximum is at least the sink is not rescaled, and its sum is rounded once.

    Args:
        m_i: `[BLOCK_M]` fp32, maximum of z.
        l_i: `[BLOCK_M]` fp32, sum of exp2(z - m_i); 0 in a row that sees no key, which stays as it is.
        sink2: logit of the sink times log2(e), finite.

    Returns:
        `(m_i, l_i, alpha)` with the sink, and the factor of everything accumulated so far.
    """
    empty = l_i == 0.0
    m_new = tl.where(empty, m_i, tl.maximum(m_i, sink2))
    pivot = tl.where(empty, 0.0, m_new)
    alpha = tl.exp2(m_i - pivot)
    return m_new, tl.where(empty, 0.0, l_i * alpha + tl.exp2(sink2 - pivot)), alpha


@triton.jit
def finish(m_i, l_i):
    """The divisor of the accumulator and the base-2 LSE; a row without keys has divisor 1 and LSE -inf."""
    divisor = tl.where(l_i == 0.0, 1.0, l_i)
    return divisor, m_i + tl.log2(divisor)


@triton.jit
def weights(z, lse2, see, MASKED: tl.constexpr):
    """The normalised weights exp2(z - lse2) in fp32, exactly 0 wherever the mask says so."""
    p = tl.exp2(z - lse2)
    if MASKED:
        p = tl.where(see, p, 0.0)
    return p


@triton.jit
def score_gradient(p, dp, delta, see, MASKED: tl.constexpr):
    """The gradient of the logits, p * (dP - delta) in fp32, exactly 0 wherever the mask says so: at an invisible pair dP may overflow, and 0 * inf is NaN."""
    ds = p * (dp - delta)
    if MASKED:
        ds = tl.where(see, ds, 0.0)
    return ds
