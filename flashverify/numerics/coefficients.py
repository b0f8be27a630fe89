"""The scalar coefficients of the bounds: everything that depends on the form, the formats and the shape, and on no tensor element."""

import math
from dataclasses import dataclass
from functools import lru_cache

from flashverify.formats import FORMATS, format_of
from flashverify.numerics.features import FeatureCoefficients, Features, feature_coefficients
from flashverify.numerics.form import Form
from flashverify.numerics.primitives import DIV_EPS, LG2_EPS, dot_coefficient

__all__ = ["LN2", "LOG2E", "OVERFLOW_FP32", "Coefficients", "Shape", "coefficients", "key_blocks"]

LN2 = math.log(2.0)
LOG2E = math.log2(math.e)
# Half the fp32 range: a sum of magnitudes below it cannot overflow, whatever the order and the rounding.
OVERFLOW_FP32 = 2.0**127
# Every first-order sum of relative errors in an exponent is enlarged by this much to hold its second-order terms.
_SECOND_ORDER = 1 + 2.0**-18
_BLOCKS = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes that the coefficients depend on: `group` query heads a kv head, `Sq` queries, `Sk` keys, head sizes `D` and `Dv`."""

    group: int
    Sq: int
    Sk: int
    D: int
    Dv: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Coefficients of one evaluation of the formulas; all are absolute values in natural units unless a name says otherwise.

    Attributes:
        u: Unit roundoff of the accumulation format.
        w: Largest magnitude that it may flush to zero.
        flush: The same for the inputs' format where hardware may flush them; 0 for fp16.
        s_dot_fwd: Coefficient of `sum |q| |k|` in the error of a logit, forward; `s_dot_bwd` in the backward.
        s_abs: Coefficient of `|S|`.
        s_max: Coefficient of `max(|S|, |m|)`, forward.
        s_const: Constant error of a logit.
        s_flush: Coefficient of `sum |q| + sum |k|`.
        prescale_fwd: Coefficient of the sum over the operand that is not prescaled; `prescale_bwd` likewise.
        gap: Coefficient of `m - S` (forward) and of `|S - L|` (backward).
        theta_fwd: Constant part of theta, forward; `theta_bwd` backward.
        row_sum: Relative error of l.
        u_p: Unit roundoff of the cast of P and dS; 0 for fp32. `eta_p` its subnormal error, `p_max` its overflow threshold.
        dot_keys: D(Sk) with the rescales; `dot_queries` D(group Sq); `dot_v` D(Dv).
        div: Relative error of the division and of a split's merge.
        split: Coefficient of a stored partial LSE in the weights of a split.
        row_sum_rounded: The row sum adds the rounded weights.
        u_partial: Unit roundoff of a stored partial output, `eta_partial` its subnormal error; 0 for fp32.
        lg2: Absolute error of the logarithm, base 2, times `max(1, log2 l)`.
        lse_natural: The kernel returns a natural LSE.
        base_fwd: Roundings of the stored LSE in units of `u |L|`; `base_bwd` relative error of reading it back, `base_bwd_conditional` of the
            returned LSE against the one that the backward reads.
        u_out: Unit roundoff of O, `eta_out` its subnormal error; `u_grad`, `eta_grad` of the gradients.
        ds_rounded_p: dS is taken from the rounded P.
        dp_delta: The dP accumulator starts at -delta.
        eta_ds: Subnormal error of the cast of dS as it reaches a gradient, before the other operand.
        grad_scale: |scale| in dQ and dK, at least w where it is subnormal: then it may be flushed, and w bounds the scale and its error.
        ds_cast: Factor of dS at its cast: the scale where it comes first.
        operand: Factor in fp32 of an operand of dQ and dK, of dS or of K and Q: the scale where it multiplies one, else 0.
        cast_q: Coefficient of the upper bound of |dS| in dQ: its cast, the dot and a narrow accumulator; `cast_k` in dK, `cast_v` of P in dV.
        acc_q: Largest sum of magnitudes that the accumulator of dQ takes; `acc_k`, `acc_v` likewise.
        const_q: Absolute error of dQ from flushing and narrow additions; `const_k`, `const_v` likewise.
        prescaled_q: Unit roundoff of the prescaled operand of the dQ dot, else 0; `prescaled_k` of dK's.
        u_dbias: Unit roundoff of each head's dS before it is added to the gradient of a bias, `eta_dbias` its subnormal error; 0 for fp32.
        features: Those of softcap, biases, sink and dropout, or None.
    """

    u: float
    w: float
    flush: float
    s_dot_fwd: float
    s_dot_bwd: float
    s_abs: float
    s_max: float
    s_const: float
    s_flush: float
    prescale_fwd: float
    prescale_bwd: float
    gap: float
    theta_fwd: float
    theta_bwd: float
    split: float
    row_sum: float
    row_sum_rounded: bool
    u_p: float
    eta_p: float
    p_max: float
    dot_keys: float
    dot_queries: float
    dot_v: float
    div: float
    u_partial: float
    eta_partial: float
    lg2: float
    lse_natural: bool
    base_fwd: float
    base_bwd_conditional: float
    base_bwd: float
    u_out: float
    eta_out: float
    u_grad: float
    eta_grad: float
    ds_rounded_p: bool
    dp_delta: bool
    eta_ds: float
    grad_scale: float
    ds_cast: float
    operand: float
    cast_q: float
    cast_k: float
    cast_v: float
    acc_q: float
    acc_k: float
    acc_v: float
    const_q: float
    const_k: float
    const_v: float
    prescaled_q: float
    prescaled_k: float
    u_dbias: float = 0.0
    eta_dbias: float = 0.0
    features: FeatureCoefficients | None = None


def key_blocks(form: Form, Sk: int) -> tuple[int, int]:
    """Return `(BN + 2 Nb, Nb)`: the roundings of a row sum and the key blocks of a row, each the largest over the block sizes allowed.

    A block of BN keys sums at most min(BN, Sk) non-zero weights; masked weights are exact zeros.
    """
    if Sk == 0:
        return 0, 0
    sizes = (form.block_n,) if form.block_n is not None else _BLOCKS
    pairs = []
    for size in sizes:
        blocks = form.n_blocks if form.n_blocks is not None else math.ceil(Sk / size)
        blocks += form.n_splits - 1
        pairs.append((min(size, Sk) + 2 * blocks, blocks))
    return max(total for total, _ in pairs), max(blocks for _, blocks in pairs)


@lru_cache(maxsize=4096)
def coefficients(form: Form, dtype: str, shape: Shape, scale: float, features: Features | None = None) -> Coefficients:
    """Return the coefficients of a subject.

    Args:
        form: Its numerical form.
        dtype: Input dtype, `"fp16"`, `"bf16"`, `"fp32"`.
        shape: Sizes of the case.
        scale: Softmax scale, any sign.
        features: Softcap, biases, sink and dropout, or None.

    Returns:
        The coefficients.
    """
    x = format_of(dtype)
    u, w, sc, eps = 2.0**-24, 2.0**-126, abs(scale), form.eps / (1 - form.eps)
    wide = dtype == "fp32"
    out, grad = FORMATS[form.out_dtype or dtype], FORMATS[form.grad_dtype or dtype]
    row_sum, blocks = key_blocks(form, shape.Sk)
    splits, sink = form.n_splits > 1, features is not None and features.sink
    # A sink is one more term of the row sum, and its logit may be the last to raise the maximum.
    row_sum, rescales = row_sum + 2 * sink, blocks + splits + sink
    beside = None if features is None else feature_coefficients(form, dtype, features)
    factor, drop = (
        (1.0, 0.0) if features is None or beside is None else (features.factor, beside.drop + beside.drop_cast)
    )
    queries = shape.group * shape.Sq

    def dot(K: int, parts: int = 1) -> float:
        return dot_coefficient(K, dtype=dtype, dot=form.dot, architecture=form.architecture, parts=parts)

    def s_dot(prescale: str) -> float:
        # The product with the scale is one of kappa's; a prescaled operand adds one rounding to the input dtype. fl(scale log2 e) may be subnormal.
        u_pre = 0.0 if prescale == "none" else x.u
        return ((dot(shape.D) * (1 + u_pre) + u_pre) * sc + 2 * w) * _SECOND_ORDER

    u_p, eta_p = (0.0, 0.0) if wide else (x.u, x.eta)
    # A dot of its own for every tile, added to the accumulator, costs one rounding a tile.
    dot_keys = dot(shape.Sk, form.n_splits) + u * blocks
    dot_queries = dot(queries, shape.group) + u * shape.group * math.ceil(shape.Sq / 16)
    accum = FORMATS[form.grad_accum]
    narrow_q = form.grad_accum != "fp32" and form.grad_accum_of != "dkv"
    narrow_k = form.grad_accum != "fp32" and form.grad_accum_of != "dq"
    adds_q = (form.grad_adds or blocks) if narrow_q else 0
    adds_k = (form.grad_adds or shape.group * math.ceil(shape.Sq / 16)) if narrow_k else 0
    per_head = form.gqa_partial == "input" and shape.group > 1
    narrow_head = min(x.max, OVERFLOW_FP32) if per_head else OVERFLOW_FP32
    up, flushed = max(1.0, sc), 0 < sc < w
    full = OVERFLOW_FP32 / (1.0 if form.scale_ds == "after" else up)
    scaled = u * _SECOND_ORDER if form.scale_ds == "operand" else 0.0
    return Coefficients(
        u=u,
        w=w,
        flush=0.0 if dtype == "fp16" else w,
        s_dot_fwd=s_dot(form.prescale_fwd),
        s_dot_bwd=s_dot(form.prescale_bwd),
        s_abs=form.kappa * u * _SECOND_ORDER,
        s_max=2 * u * _SECOND_ORDER if form.max_source == "apart" else 0.0,
        s_const=shape.D * w * (max(sc, 1.0) if (form.prescale_fwd, form.prescale_bwd) != ("none", "none") else sc) + w,
        s_flush=0.0 if dtype == "fp16" else w * sc,
        prescale_fwd=x.eta / LOG2E if form.prescale_fwd != "none" else 0.0,
        prescale_bwd=x.eta / LOG2E if form.prescale_bwd != "none" else 0.0,
        gap=form.gap_c * u * _SECOND_ORDER,
        theta_fwd=(eps + (eps + u) * rescales + form.gap_c * u * 2 * form.rescale_threshold * LN2) * _SECOND_ORDER,
        theta_bwd=eps * _SECOND_ORDER,
        split=(7 * u if form.partial_lse_base == "e" else 3 * u) if splits else 0.0,
        row_sum=row_sum * u / (1 - min(row_sum * u, 0.5)),
        row_sum_rounded=form.row_sum == "rounded" and not wide,
        u_p=u_p,
        eta_p=eta_p * (2 if beside is not None and beside.drop_cast else 1),
        p_max=OVERFLOW_FP32 if wide else min(x.max, OVERFLOW_FP32),
        dot_keys=dot_keys + u * rescales + (8 * u * blocks if form.normalise == "every_block" else 0.0),
        dot_queries=dot_queries,
        dot_v=dot(shape.Dv) + (0.0 if beside is None else beside.drop),
        div=2 * DIV_EPS * (1 + splits) + (0.0 if beside is None else beside.drop),
        u_partial=0.0 if form.partial_dtype == "fp32" else FORMATS[form.partial_dtype].u,
        eta_partial=0.0 if form.partial_dtype == "fp32" else FORMATS[form.partial_dtype].eta,
        lg2=LG2_EPS * (1 + splits),
        lse_natural=form.lse_base == "e",
        base_fwd=(3.0 if form.lse_base == "e" else 2.0) + (4.0 if splits else 0.0),
        base_bwd_conditional=2 * u if "e" in (form.lse_base, form.bwd_lse_base) else 0.0,
        base_bwd=2 * u if form.bwd_lse_base == "e" else 0.0,
        u_out=out.u,
        eta_out=out.eta,
        u_grad=grad.u,
        eta_grad=grad.eta,
        ds_rounded_p=form.ds_from == "p_rounded" and not wide,
        dp_delta=form.dp_init == "minus_delta",
        # dS is cast unscaled: its subnormal error reaches the gradient times the scale. sc dS is cast: it reaches it as it is.
        eta_ds=eta_p * (1.0 if form.scale_ds == "before" else sc) + (w if form.scale_ds == "operand" else 0.0),
        grad_scale=w if flushed else sc,
        ds_cast=sc if form.scale_ds == "before" else 1.0,
        operand=sc if form.scale_ds == "operand" else 0.0,
        cast_q=(1 + u_p) * (1 + dot_keys) - 1 + scaled + adds_q * accum.u + flushed,
        cast_k=(1 + u_p) * (1 + dot_queries) - 1 + scaled + (x.u if per_head else 0.0) + adds_k * accum.u + flushed,
        cast_v=(1 + u_p) * (1 + dot_queries) - 1 + (x.u if per_head else 0.0) + adds_k * accum.u + drop,
        acc_q=min(accum.max, OVERFLOW_FP32) / up if narrow_q else full,
        acc_k=min(accum.max, OVERFLOW_FP32) / up if narrow_k else narrow_head / up,
        acc_v=min(accum.max, OVERFLOW_FP32) if narrow_k else narrow_head,
        const_q=shape.Sk * w * up + adds_q * accum.eta,
        const_k=queries * w * up + (shape.group * x.eta if per_head else 0.0) + adds_k * accum.eta,
        const_v=queries * w * factor + (shape.group * x.eta if per_head else 0.0) + adds_k * accum.eta,
        prescaled_q=x.u if form.grad_uses_prescaled and form.prescale_bwd == "k" else 0.0,
        prescaled_k=x.u if form.grad_uses_prescaled and form.prescale_bwd == "q" else 0.0,
        u_dbias=x.u if form.dbias_partial == "input" else 0.0,
        eta_dbias=x.eta if form.dbias_partial == "input" else 0.0,
        features=beside,
    )
