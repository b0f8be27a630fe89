"""The coefficients of a subject: everything that depends on the form, the formats and the shape, and on no tensor element."""

import math
from functools import lru_cache

from flashverify.formats import FORMATS
from flashverify.numerics.coefficient_groups import (
    Coefficients,
    DerivativeCoefficients,
    GradientCoefficients,
    LogitCoefficients,
    LseCoefficients,
    OutputCoefficients,
    UnitCoefficients,
    WeightCoefficients,
)
from flashverify.numerics.features import Features
from flashverify.numerics.form import Form
from flashverify.numerics.primitives import DIV_EPS, LG2_EPS, operand_error
from flashverify.numerics.quantised import FP8_WEIGHTS
from flashverify.numerics.setting import Setting, U, W, setting_of
from flashverify.numerics.shape import Shape

__all__ = ["LN2", "LOG2E", "OVERFLOW_FP32", "Coefficients", "coefficients"]

LN2 = math.log(2.0)
LOG2E = math.log2(math.e)
# Half the fp32 range: a sum of magnitudes below it cannot overflow, whatever the order and the rounding.
OVERFLOW_FP32 = 2.0**127
# Every first-order sum of relative errors in an exponent is enlarged by this much to hold its second-order terms.
_SECOND_ORDER = 1 + 2.0**-18


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
    s = setting_of(form, dtype, shape, scale, features)
    return Coefficients.of(
        UnitCoefficients(u=U, w=W, flush=0.0 if s.x.subnormals else W),
        _logits(s),
        _weights(s),
        _lse(s),
        _output(s),
        _derivatives(s),
        _gradients(s),
        features=s.beside,
        quantised=True,
        s_scale=s.scale,
    )


def _logits(s: Setting) -> LogitCoefficients:
    """Section 3."""
    form, x, sc = s.form, s.x, s.scale

    def s_dot(prescale: str) -> float:
        # The product with the scale is one of kappa's; a prescaled operand adds one rounding to the input dtype. fl(scale log2 e) may be subnormal.
        u_pre = 0.0 if prescale == "none" else x.u
        subnormal = 2 * W if 0 < sc < 2 * W else 0.0
        return ((s.dot_channels * (1 + u_pre) + u_pre) * sc + subnormal) * _SECOND_ORDER * (1 + 3 * s.u_s)

    if (
        form.partials == "given"
    ):  # nothing computes a logit; kappa counts roundings of a stored LSE beside those of a split
        none = dict.fromkeys(
            (
                "s_dot_fwd",
                "s_dot_bwd",
                "s_max",
                "s_const",
                "s_flush",
                "s_mean",
                "s_mean_eta",
                "prescale_fwd",
                "prescale_bwd",
            ),
            0.0,
        )
        return LogitCoefficients(s_abs=form.kappa * U * _SECOND_ORDER, **none)
    prescaled = (form.prescale_fwd, form.prescale_bwd) != ("none", "none")
    s_abs = form.kappa * U * _SECOND_ORDER + 2 * s.u_s * (1 + s.u_s)
    # |K - mean| <= |K| + max |K|: the product and its roundings grow by those of max |K|, and the correction of the LSE is one more product.
    smoothed = x.u * sc * (1 + s.dot_channels) if form.k_smoothed and x.narrow else 0.0
    return LogitCoefficients(
        s_mean=s_dot(form.prescale_fwd) * 2 + smoothed + s_abs * sc + 4 * U * sc if form.k_smoothed else 0.0,
        s_mean_eta=(x.eta + W) * sc if form.k_smoothed else 0.0,
        s_dot_fwd=s_dot(form.prescale_fwd) + smoothed,
        s_dot_bwd=s_dot(form.prescale_bwd) + smoothed,
        s_abs=s_abs,
        s_max=2 * U * _SECOND_ORDER if form.max_source == "apart" else 0.0,
        s_const=s.shape.D * W * (max(sc, 1.0) if prescaled else sc) + W + (x.eta * (sc + 1) if s.u_s else 0.0),
        s_flush=0.0 if x.subnormals else sc * _SECOND_ORDER,
        prescale_fwd=x.eta / LOG2E if form.prescale_fwd != "none" else 0.0,
        prescale_bwd=x.eta / LOG2E if form.prescale_bwd != "none" else 0.0,
    )


def _by_lse(form: Form) -> bool:
    """Whether the LSE stands for the row sum."""
    return form.normalise in ("lse", "lse_weights")


def _weights(s: Setting) -> WeightCoefficients:
    """Sections 4, 5 and 10."""
    form, eps = s.form, s.form.eps / (1 - s.form.eps)
    theta_fwd = eps + (eps + U) * s.rescales + form.gap_c * U * 2 * form.rescale_threshold * LN2
    # Weights that are kept have the roundings of the forward, and of the division by their sum.
    theta_bwd = theta_fwd + 2 * DIV_EPS + eps * _by_lse(form) if form.p_from == "forward" else eps
    return WeightCoefficients(
        eps=eps * _SECOND_ORDER,
        gap=form.gap_c * U * _SECOND_ORDER,
        theta_fwd=theta_fwd * _SECOND_ORDER,
        theta_bwd=theta_bwd * _SECOND_ORDER,
        merges=form.n_merges,
        split=(7 * U if form.partial_lse_base == "e" else 3 * U) * form.n_merges if s.splits else 0.0,
        split_lse=8 * U if form.normalise == "lse" else 0.0,
        row_sum=s.sums * U / (1 - min(s.sums * U, 0.5)),
        row_sum_rounded=form.row_sum == "rounded" and s.u_p > 0,
        u_p=s.u_p,
        eta_p=s.eta_p * (2 if s.beside is not None and s.beside.drop_cast else 1),
        p_max=s.p_max,
    )


def _lse(s: Setting) -> LseCoefficients:
    """Section 6."""
    form = s.form
    return LseCoefficients(
        lg2=LG2_EPS * (1 + s.splits),
        lse_natural=form.lse_base == "e",
        base_fwd=(3.0 if form.lse_base == "e" else 2.0) + (4.0 if s.splits else 0.0),
        base_bwd=2 * U if form.bwd_lse_base == "e" or (form.p_from == "forward" and _by_lse(form)) else 0.0,
        base_bwd_conditional=2 * U if "e" in (form.lse_base, form.bwd_lse_base) else 0.0,
    )


def _output(s: Setting) -> OutputCoefficients:
    """Sections 5 and 7."""
    form, out = s.form, FORMATS[s.form.out_dtype or s.x.name]
    partial = None if form.partial_dtype == "fp32" else FORMATS[form.partial_dtype]
    divisions = {"every_block": s.blocks, "before_cast": 1}.get(form.normalise, 0)
    narrow_pv, accum = form.pv_dtype == "input" and s.x.narrow, FORMATS[form.o_accum]
    u_pv, eta_pv = (s.x.u, s.x.eta) if narrow_pv else (0.0, 0.0)
    u_acc, eta_acc = (accum.u, accum.eta) if form.o_accum != "fp32" else (0.0, 0.0)
    limits = [OVERFLOW_FP32, *([s.x.max] if narrow_pv else []), *([accum.max] if u_acc else [])]
    limit = min(limits) / (1 + max(u_pv, u_acc)) ** 2
    ordered = form.key_order == "ascending" and form.block_n is not None and s.shape.Sk > 0
    tile = s.weighted(min(form.block_n or 0, s.shape.Sk)) if ordered else 0.0
    # Sums of fp8 products that leave the matrix unit with every tile are added in fp32.
    apart = form.products in FP8_WEIGHTS and form.fp8_chain is not None and form.fp8_chain <= (form.block_n or 0)
    # Operands that are truncated cost the products, not the accumulator. 2u: acc alpha, and acc + the product where it is a sum of its own.
    operands = operand_error(s.x.name, form.dot)
    return OutputCoefficients(
        normalise=form.normalise,
        tile_dot=(tile + 2 * U) * _SECOND_ORDER if ordered else 0.0,
        tile_sum=((0.0 if apart else tile - operands) + 2 * U) * _SECOND_ORDER if ordered else 0.0,
        dot_keys=s.dot_keys + U * s.rescales + divisions * 8 * U,
        u_acc=math.expm1(u_pv + 2 * s.blocks * u_acc),
        eta_acc=(eta_pv + 2 * eta_acc) * s.blocks,
        eta_cast=s.eta_p if form.normalise == "before_cast" else 0.0,
        acc_limit=limit,
        div=2 * DIV_EPS * (1 + s.splits) + (0.0 if s.beside is None else s.beside.drop),
        u_partial=0.0 if partial is None else partial.u,
        eta_partial=0.0 if partial is None else partial.eta,
        u_out=out.u,
        eta_out=out.eta,
    )


def _derivatives(s: Setting) -> DerivativeCoefficients:
    """Sections 9 and 11."""
    form, sc, narrow_dp = s.form, s.scale, s.form.dp_dtype == "input" and s.x.narrow
    return DerivativeCoefficients(
        dot_v=s.dot(s.shape.Dv) + (0.0 if s.beside is None else s.beside.drop),
        u_dp=s.x.u if narrow_dp else 0.0,
        eta_dp=s.x.eta if narrow_dp else 0.0,
        dp_limit=min(s.x.max, OVERFLOW_FP32) / (1 + 2 * s.x.u) if narrow_dp else OVERFLOW_FP32,
        dp_delta=form.dp_init == "minus_delta",
        delta_weights=form.delta_from == "p",
        weights_kept=form.p_from == "forward",
        ds_rounded_p=form.ds_from == "p_rounded" and s.x.narrow,
        ds_cast=sc if form.scale_ds == "before" else 1.0,
        # dS is cast unscaled: its subnormal error reaches the gradient times the scale. sc dS is cast: it reaches it as it is.
        eta_ds=s.eta_p * (1.0 if form.scale_ds == "before" else sc)
        + (W if form.scale_ds == "operand" else 0.0)
        + (s.x.eta * (1 + sc) if s.u_s else 0.0),
        u_dbias=s.x.u if form.dbias_partial == "input" else 0.0,
        eta_dbias=s.x.eta if form.dbias_partial == "input" else 0.0,
        dbias_max=s.x.overflow if form.dbias_partial == "input" and s.x.narrow else math.inf,
    )


def _gradients(s: Setting) -> GradientCoefficients:
    """Sections 12 and 13."""
    form, x, sc, group = s.form, s.x, s.scale, s.shape.group
    grad, accum = FORMATS[form.grad_dtype or x.name], FORMATS[form.grad_accum]
    u_p, dot_keys, dot_queries = x.u if x.narrow else 0.0, s.dot_keys, s.dot_queries
    flushes = form.grad_parts - 1  # each part is scaled, and may be flushed, before it is added
    # Accumulators in another dtype than fp32.
    narrow_q = form.grad_accum != "fp32" and form.grad_accum_of != "dkv"
    narrow_k = form.grad_accum != "fp32" and form.grad_accum_of != "dq"
    adds_q = (form.grad_adds or s.blocks) if narrow_q else 0
    adds_k = (form.grad_adds or group * math.ceil(s.shape.Sq / 16)) if narrow_k else 0
    # Heads that are rounded before the sum over the group.
    per_head = form.gqa_partial == "input" and group > 1
    narrow_head = min(x.max, OVERFLOW_FP32) if per_head else OVERFLOW_FP32
    # The scale, which may be subnormal, on the gradients, on an operand or on dS.
    up, flushed = max(1.0, sc), 0 < sc < W
    full = OVERFLOW_FP32 / (1.0 if form.scale_ds == "after" else up)
    scaled = U * _SECOND_ORDER if form.scale_ds == "operand" else 0.0
    return GradientCoefficients(
        dot_queries=dot_queries,
        u_grad=grad.u,
        eta_grad=grad.eta,
        grad_scale=W if flushed else sc,
        operand=sc if form.scale_ds == "operand" else 0.0,
        cast_q=(1 + u_p) * (1 + dot_keys) * (1 + s.u_s) - 1 + scaled + adds_q * accum.u + flushed,
        cast_k=(1 + u_p) * (1 + dot_queries) * (1 + s.u_s)
        - 1
        + scaled
        + (x.u if per_head else 0.0)
        + adds_k * accum.u
        + flushed,
        cast_v=(1 + u_p) * (1 + dot_queries) - 1 + (x.u if per_head else 0.0) + adds_k * accum.u + s.drop,
        acc_q=min(accum.max, OVERFLOW_FP32) / up if narrow_q else full,
        acc_k=min(accum.max, OVERFLOW_FP32) / up if narrow_k else narrow_head / up,
        acc_v=min(accum.max, OVERFLOW_FP32) if narrow_k else narrow_head,
        const_q=(s.shape.Sk + flushes) * W * up + adds_q * accum.eta,
        const_k=(s.queries + flushes) * W * up + (group * x.eta if per_head else 0.0) + adds_k * accum.eta,
        const_v=(s.queries + flushes) * W * s.factor + (group * x.eta if per_head else 0.0) + adds_k * accum.eta,
        prescaled_q=x.u if form.grad_uses_prescaled and form.prescale_bwd == "k" else 0.0,
        prescaled_k=x.u if form.grad_uses_prescaled and form.prescale_bwd == "q" else 0.0,
    )
