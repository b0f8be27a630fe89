"""The coefficients that the formulas of the bounds take, by the section of docs/bounds.md that defines them; absolute, in natural units but where said."""

import math
from dataclasses import dataclass, fields
from typing import Any, Self

from flashverify.numerics.features import FeatureCoefficients
from flashverify.numerics.truncation import Truncation

__all__ = [
    "Coefficients",
    "DerivativeCoefficients",
    "GradientCoefficients",
    "LogitCoefficients",
    "LseCoefficients",
    "OutputCoefficients",
    "UnitCoefficients",
    "WeightCoefficients",
]


@dataclass(frozen=True, kw_only=True)
class UnitCoefficients:
    """Section 0: the format of accumulation.

    Attributes:
        u: Its unit roundoff.
        w: Largest magnitude that it may flush to zero.
        flush: The same for the inputs' format where hardware may flush them; 0 for fp16.
    """

    u: float
    w: float
    flush: float


@dataclass(frozen=True, kw_only=True)
class LogitCoefficients:
    """Section 3: errors of a logit.

    Attributes:
        s_dot_fwd: Coefficient of `sum |q| |k|`, forward; `s_dot_bwd` backward.
        s_abs: Coefficient of `|S|`.
        s_max: Coefficient of `max(|S|, |m|)`, forward.
        s_const: Constant error.
        s_flush: Coefficient of the products that flushed operands lose; 0 where none is flushed.
        s_mean: Coefficient of `sum |q| max_j |k|` of a smoothed K, `s_mean_eta` of `sum |q|`; 0 without one.
        prescale_fwd: Coefficient of the sum over the operand that is not prescaled; `prescale_bwd` likewise.
    """

    s_dot_fwd: float
    s_dot_bwd: float
    s_abs: float
    s_max: float
    s_const: float
    s_flush: float
    s_mean: float
    s_mean_eta: float
    prescale_fwd: float
    prescale_bwd: float


@dataclass(frozen=True, kw_only=True)
class WeightCoefficients:
    """Sections 4, 5 and 10: errors of the exponents, of the row sum and of the cast of the weights.

    Attributes:
        eps: Relative error of an exponential.
        gap: Coefficient of `m - S` (forward) and of `|S - L|` (backward).
        theta_fwd: Constant part of theta, forward; `theta_bwd` backward.
        merges: Merges that a split goes through.
        split: Coefficient of a stored partial LSE in the weights of a split, for all its merges; `split_lse` more where it also stands for the row sum.
        row_sum: Relative error of l.
        row_sum_rounded: The row sum adds the rounded weights.
        u_p: Unit roundoff of the cast of P and dS; 0 for fp32. `eta_p` its subnormal error, `p_max` its overflow threshold.
    """

    eps: float
    gap: float
    theta_fwd: float
    theta_bwd: float
    merges: int
    split: float
    split_lse: float
    row_sum: float
    row_sum_rounded: bool
    u_p: float
    eta_p: float
    p_max: float


@dataclass(frozen=True, kw_only=True)
class LseCoefficients:
    """Section 6: the LSE, and what the backward reads of it.

    Attributes:
        lg2: Absolute error of the logarithm, base 2, times `max(1, log2 l)`.
        lse_natural: The kernel returns a natural LSE.
        base_fwd: Roundings of the stored LSE in units of `u |L|`.
        base_bwd: Relative error of reading it back; `base_bwd_conditional` of the returned LSE against the one that the backward reads.
    """

    lg2: float
    lse_natural: bool
    base_fwd: float
    base_bwd: float
    base_bwd_conditional: float


@dataclass(frozen=True, kw_only=True)
class OutputCoefficients:
    """Sections 5 and 7: O and the partial outputs of splits.

    Attributes:
        normalise: What the weights are divided by, as in the form.
        dot_keys: D(Sk) with the rescales.
        tile_dot: D(BN) of a declared tile with the roundings of its rescale and of its sum, on its own products, else 0; `tile_sum` on the accumulator.
        div: Relative error of the division and of a split's merge.
        u_acc: Relative error of the products of the tiles and of the accumulator where they are narrow, `eta_acc` their subnormal error, before the division.
        eta_cast: Subnormal error of a weight that is divided by its sum before its cast, else 0.
        acc_limit: Largest sum that they take.
        u_partial: Unit roundoff of a stored partial output, `eta_partial` its subnormal error; 0 for fp32.
        u_out: Unit roundoff of O, `eta_out` its subnormal error.
    """

    normalise: str
    dot_keys: float
    div: float
    u_acc: float
    eta_acc: float
    eta_cast: float
    acc_limit: float
    u_partial: float
    eta_partial: float
    u_out: float
    eta_out: float
    tile_dot: float = 0.0
    tile_sum: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DerivativeCoefficients:
    """Sections 9 and 11: dP and dS.

    Attributes:
        dot_v: D(Dv).
        u_dp: Unit roundoff of dP where it is narrow, `eta_dp` its subnormal error, `dp_limit` the largest that it takes.
        dp_delta: The dP accumulator starts at -delta.
        delta_weights: delta is the sum of P dP, and not of dO O.
        weights_kept: P is the forward's, and not recomputed from the LSE.
        ds_rounded_p: dS is taken from the rounded P.
        ds_cast: Factor of dS at its cast: the scale where it comes first.
        eta_ds: Subnormal error of the cast of dS as it reaches a gradient, before the other operand.
        u_dbias: Unit roundoff of each head's dS before it is added to the gradient of a bias, `eta_dbias` its subnormal error; 0 for fp32.
        dbias_max: From this size on that dS leaves its format; infinite for fp32.
    """

    dot_v: float
    u_dp: float
    eta_dp: float
    dp_limit: float
    dp_delta: bool
    delta_weights: bool
    weights_kept: bool
    ds_rounded_p: bool
    ds_cast: float
    eta_ds: float
    u_dbias: float = 0.0
    dbias_max: float = math.inf
    eta_dbias: float = 0.0


@dataclass(frozen=True, kw_only=True)
class GradientCoefficients:
    """Sections 12 and 13: dQ, dK and dV.

    Attributes:
        dot_queries: D(group Sq).
        u_grad: Unit roundoff of the gradients, `eta_grad` their subnormal error.
        grad_scale: |scale| in dQ and dK, at least w where it is subnormal: then it may be flushed, and w bounds the scale and its error.
        operand: Factor in fp32 of an operand of dQ and dK, of dS or of K and Q: the scale where it multiplies one, else 0.
        cast_q: Coefficient of the upper bound of |dS| in dQ: its cast, the dot and a narrow accumulator; `cast_k` in dK, `cast_v` of P in dV.
        acc_q: Largest sum of magnitudes that the accumulator of dQ takes; `acc_k`, `acc_v` likewise.
        const_q: Absolute error of dQ from flushing and narrow additions; `const_k`, `const_v` likewise.
        prescaled_q: Unit roundoff of the prescaled operand of the dQ dot, else 0; `prescaled_k` of dK's.
    """

    dot_queries: float
    u_grad: float
    eta_grad: float
    grad_scale: float
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


@dataclass(frozen=True, kw_only=True)
class Coefficients(
    UnitCoefficients,
    LogitCoefficients,
    WeightCoefficients,
    LseCoefficients,
    OutputCoefficients,
    DerivativeCoefficients,
    GradientCoefficients,
):
    """Coefficients of one evaluation of the formulas: every group, and those of softcap, biases, sink and dropout, or None.

    Attributes:
        quantised: The scales of a quantised K and V count: not in the oracle's own evaluation, which takes their values.
        s_scale: |softmax scale|.
        truncation: What dots lose in one direction, of the directed part of a bound; else None.
    """

    features: FeatureCoefficients | None = None
    quantised: bool = False
    s_scale: float = 0.0
    truncation: Truncation | None = None

    @classmethod
    def of(cls, *groups: Any, features: FeatureCoefficients | None, **more: Any) -> Self:
        """Unites the groups.

        Raises:
            TypeError: one of them is missing.
        """
        return cls(
            **{f.name: getattr(group, f.name) for group in groups for f in fields(group)}, features=features, **more
        )
