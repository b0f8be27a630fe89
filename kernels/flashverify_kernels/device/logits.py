"""From the dot product of a query and a key to the base-2 logit, and from the gradient of the logit back to that of the dot.

    S = cap(scale q k^T) + bias - slope_h |i + shift - j| + relative_h(j - i - shift)
                                                                 natural units; cap(t) = softcap * tanh(t / softcap)
    z = S * log2(e)                                              what `softmax` works on

A term whose argument is None is absent and leaves no code.
"""

import math

import triton
import triton.language as tl

from flashverify_kernels.device.arguments import HeadTerms

LOG2_E = tl.constexpr(math.log2(math.e))
_LARGEST = tl.constexpr(float.fromhex("0x1.fffffep127"))
_STEEPEST = tl.constexpr(2.0**96)

# tanh(x) = x + x z P(z), z = x^2, for |x| < 1/2: minimax to a relative 2^-25.9 with these coefficients.
_BEND = tl.constexpr(0.5)
_P0 = tl.constexpr(float.fromhex("-0x1.5554d6p-2"))
_P1 = tl.constexpr(float.fromhex("0x1.10e9fcp-3"))
_P2 = tl.constexpr(float.fromhex("-0x1.b28c78p-5"))
_P3 = tl.constexpr(float.fromhex("0x1.1a7c10p-6"))


@triton.jit
def logits(dot, i, j, sq, k_end, terms, head, MASKED: tl.constexpr):
    """Base-2 logits of one tile, in fp32.

    Every operation below rounds once to fp32, and none is left out of the list; the factors are computed in float64 on the host
    and rounded once, but for `slope_log2` (see `head_slope`) and log2(e), a rounded constant:

        plain         z = dot * fl(scale log2 e)                                    1 rounding
        softcap       x = dot * fl(scale / softcap); z = tanh(x) * fl(softcap log2 e)    2, and those of `tanh`
        bias          z = z + fp32(bias) * fl(log2 e)                               2; the conversion is exact
        ALiBi         z = z - slope_log2 * fp32(|i + shift - j|)                    2; the distance is exact below 2^24
        relative      z = z + relative * fl(log2 e)                                 2

    In this order. Where products may be contracted (all kernels but the forward) a product that is added is not rounded.
    With a bias or a relative bias, the scaled bias and z are clamped to the finite numbers: one near the end of fp32, or -inf, acts as
    the most negative logit, neither as a mask nor as a source of NaN; a NaN stays one.

    Args:
        dot: q k^T, `[BLOCK_M, BLOCK_N]` fp32, or its transpose.
        i: row numbers, shaped to broadcast along the keys of `dot`.
        j: key numbers, shaped to broadcast along the rows of `dot`.
        sq: rows from here on are padding: no bias is read for them.
        k_end: keys from here on likewise.
        terms: the `LogitTerms`.
        head: what `head_terms` makes of them.
        MASKED: whether the tile may hold keys from `k_end` on.
    """
    z = dot * terms.scale_log2 if terms.cap_log2 is None else tanh(dot * terms.cap_ratio) * terms.cap_log2
    if terms.bias.ptr is not None:
        z += load_bias(head.bias, terms.bias.row, i, j, sq, k_end, MASKED)
    if terms.slopes is not None:
        z -= head.slope_log2 * tl.abs(i + head.shift - j).to(tl.float32)
    if terms.relative.ptr is not None:
        z += load_relative(head.relative, terms.relative.width, i + head.shift, j, i < sq, k_end, MASKED)
        z = _clamp(z, _LARGEST)
    return z if terms.bias.ptr is None else _clamp(z, _LARGEST)


@triton.jit
def dot_gradient(ds, dot, cap_ratio):
    """The gradient of scale * dot from that of the logits: dS * (1 - tanh(x)^2), in fp32.

    A dS of 0 stays 0: an invisible pair may have an infinite dot, and x is NaN where scale / softcap is 0. One rounding, the one of the
    argument x, and those of `tanh_slope`.
    """
    return ds if cap_ratio is None else tl.where(ds == 0.0, 0.0, ds * tanh_slope(dot * cap_ratio))


@triton.jit
def tanh(x):
    """The hyperbolic tangent in fp32: odd, at most 1 in magnitude, infinities included; NaN stays NaN.

    Below 1/2 in magnitude an odd polynomial, elsewhere 1 - 2 e / (1 + e) with e = exp2(-2 log2(e) |x|) <= 1.
    Relative error over the normal numbers: 3 * 2^-24 where exp2 and the division round correctly, 12 * 2^-24 where each is good
    to 2 ulp; 2^-24 below 1/2 in either case.
    """
    size = tl.abs(x)
    z = x * x
    near = x + x * (z * (_P0 + z * (_P1 + z * (_P2 + z * _P3))))
    far = 1.0 - _complement(size)
    return tl.where(size < _BEND, near, tl.where(x < 0.0, -far, far))


@triton.jit
def tanh_slope(x):
    """1 - tanh(x)^2 in fp32, as c (2 - c) with c = 1 - tanh |x|: nothing cancels.

    Relative error while the result is normal: (3 + 2.5 |x|) 2^-24 where exp2 and the division round correctly,
    (12 + 2.5 |x|) 2^-24 where each is good to 2 ulp. The part that grows is the rounding of the exponent.
    """
    c = _complement(tl.abs(x))
    return c * (2.0 - c)


@triton.jit
def _complement(size):
    """1 - tanh(size) for size >= 0: 2 e / (1 + e) with e = exp(-2 size), from 1 down to 0."""
    e = tl.exp2(size * (-2.0 * LOG2_E))
    return (e + e) / (1.0 + e)


@triton.jit
def _clamp(x, limit: tl.constexpr):
    """`x` clamped to magnitude `limit`; NaN stays NaN."""
    return tl.clamp(x, -limit, limit, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def head_terms(terms, b, h, q0, q_end, k_end):
    """The `HeadTerms` of query head `h` of sequence `b`, whose rows start at `q0`; `q_end` queries and `k_end` keys of it count."""
    slope = 0.0
    if terms.slopes is not None:
        slope = head_slope(terms.slopes, h)
    bias = 0
    if terms.bias.ptr is not None:
        bias = head_bias(terms.bias, b, h) + q0.to(tl.int64) * terms.bias.row
    relative = 0
    if terms.relative.ptr is not None:
        relative = head_relative(terms.relative, h)
    return HeadTerms(slope, terms.align_distances * (k_end - q_end), bias, relative)


@triton.jit
def terms_of_rows(terms, b, h, q_end, k_end):
    """The `HeadTerms` of rows of the query heads `h`, `[BLOCK_M]`, of sequence `b`: slopes and pointers are `[BLOCK_M, 1]`."""
    slope = 0.0
    if terms.slopes is not None:
        slope = head_slope(terms.slopes, h)[:, None]
    bias = 0
    if terms.bias.ptr is not None:
        bias = head_bias(terms.bias, b, h)[:, None]
    return HeadTerms(slope, (k_end - q_end) * terms.align_distances, bias, 0)


@triton.jit
def head_slope(slopes_ptr, h):
    """ALiBi slope of query head `h` times log2(e): fp32, two roundings (log2(e) and the product).

    Clamped to magnitude 2^96, so that its product with a distance is finite.
    """
    return _clamp(tl.load(slopes_ptr + h) * LOG2_E, _STEEPEST)


@triton.jit
def head_sink(sink_ptr, h):
    """Sink of query head `h` times log2(e): fp32, two roundings, clamped to the finite numbers."""
    return _clamp(tl.load(sink_ptr + h) * LOG2_E, _LARGEST)


@triton.jit
def head_bias(bias, b, h):
    """Pointer to the bias of query head `h` of batch `b`."""
    return bias.ptr + b.to(tl.int64) * bias.batch + h.to(tl.int64) * bias.head


@triton.jit
def load_bias(bias_ptr, stride_row, i, j, sq, k_end, MASKED: tl.constexpr):
    """The bias of a tile times log2(e), fp32; 0 and not read outside of rows `sq` and keys `k_end`."""
    # in a full tile the mask is the same along the keys, which keeps wide loads possible
    keep = (i < sq) & (j < k_end) if MASKED else i < sq
    bias = tl.load(bias_ptr + (i.to(tl.int64) * stride_row + j), mask=keep, other=0.0)
    scaled = bias.to(tl.float32) * LOG2_E
    return scaled if bias.dtype == tl.float16 else _clamp(scaled, _LARGEST)  # no fp16 comes near the end of fp32


@triton.jit
def head_relative(relative, h):
    """Pointer to the relative bias of query head `h` at distance 0."""
    return relative.ptr + (h.to(tl.int64) * relative.width + relative.width // 2)


@triton.jit
def load_relative(relative_ptr, width, position, j, rows, k_end, MASKED: tl.constexpr):
    """The relative bias of a tile times log2(e), fp32; 0 and not read outside of `rows` and keys `k_end`."""
    reach = width // 2
    distance = tl.minimum(tl.maximum(j - position, -reach), reach)
    keep = rows & (j < k_end) if MASKED else rows
    bias = tl.load(relative_ptr + distance, mask=keep, other=0.0)
    return _clamp(bias * LOG2_E, _LARGEST)
