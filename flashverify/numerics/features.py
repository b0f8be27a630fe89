"""Softcap, biases, sink and dropout: what a problem has of them, and the coefficients of their errors (docs/bounds.md, sections 3 to 12)."""

import math
from dataclasses import dataclass

from torch import Tensor

from flashverify.formats import format_of
from flashverify.numerics.form import Form
from flashverify.numerics.primitives import DIV_EPS, TANH_APPROX_EPS, TANH_EPS

__all__ = ["FeatureCoefficients", "Features", "check_modifiers", "feature_coefficients", "float64_features"]

_SECOND_ORDER = 1 + 2.0**-18


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a problem has beside q, k, v and a mask; a problem without any of it has none of these.

    Attributes:
        softcap: Logits pass through `softcap tanh(t / softcap)`; None if they do not.
        biases: Number of additive terms of a logit, ALiBi among them.
        sink: One more column of logits, with V = 0.
        keep: Weights are dropped.
        dropout: Probability p; the kept weights are multiplied by `1 / (1 - p)`.
    """

    softcap: float | None = None
    biases: int = 0
    sink: bool = False
    keep: bool = False
    dropout: float = 0.0

    @property
    def factor(self) -> float:
        """`1 / (1 - p)`."""
        return 1.0 / (1.0 - self.dropout)


def check_modifiers(heads: int, *, softcap: float | None, dropout: float, keep: bool, sink: Tensor | None) -> None:
    """Refuses what no problem of so many query heads has, with a ValueError."""
    if softcap is not None and not 0 <= softcap < math.inf:
        raise ValueError(f"softcap={softcap!r} is not a softcap; accepted: None or 0 for none, or a positive number")
    if not 0 <= dropout < 1 or (dropout and not keep):
        raise ValueError(f"dropout={dropout!r} needs 0 <= dropout < 1, and keep where it is not 0")
    if sink is not None and sink.shape != (heads,):
        raise ValueError(f"sink {tuple(sink.shape)} is not one logit a query head, ({heads},)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCoefficients:
    """Coefficients of the errors; those of another feature multiply nothing.

    Attributes:
        cap_in: Coefficient of `|t|`, natural units, in the argument of tanh, beside kappa: the division by the cap.
        cap_dot: Coefficient of `sum |q| |k|` there where `fl(scale / cap)` or `fl(1 / cap)` is subnormal, else 0.
        cap_const: Constant error of a capped logit from flushing.
        cap_flat: Absolute error of the computed tanh; `cap_rel` relative to it.
        gain_product: The derivative of tanh is computed as a product and has a relative error.
        gain: Error of the computed derivative beside that of its argument, relative or else absolute.
        gain_slope: Coefficient of `|t / cap|` in the relative one.
        bias: Coefficient of each `|bias|`, and of `|sink|`: its conversion to base 2, or the product of ALiBi.
        bias_const: Constant error of a bias that is flushed.
        add: Rounding of the sum of two terms of a logit.
        drop: Relative error of a value that dropout scaled, of its factor included.
        drop_cast: The same of weights that are scaled in the input dtype.
    """

    cap_in: float
    cap_dot: float
    cap_const: float
    cap_flat: float
    cap_rel: float
    gain_product: bool
    gain: float
    gain_slope: float
    bias: float
    bias_const: float
    add: float
    drop: float
    drop_cast: float


def _scaled(features: Features, u: float) -> float:
    """fl(1 - p) from a rounded p costs `p u / (1 - p)`; the factor, its product and a division beside it `6u`."""
    return (6 + features.dropout * features.factor) * u if features.keep else 0.0


def feature_coefficients(form: Form, dtype: str, scale: float, features: Features) -> FeatureCoefficients:
    """Coefficients of a subject of a form.

    tanh(x) = sign(x) (1 - e) / (1 + e) with e = 2^(-2 |x| log2 e): e has the relative error `eps + 4u |x|`, which reaches tanh times
    `2e / (1 + e)^2 = sech^2(x) / 2`, so that `eps / 2` and, as `|x| sech^2 x <= tanh |x|`, `2u |tanh|` bound it; both sums and the division cost 6u.

    Args:
        form: Its numerical form.
        dtype: Input dtype.
        scale: Softmax scale, any sign.
        features: Of the problem.

    Returns:
        The coefficients, natural units.
    """
    u, w, cap = 2.0**-24, 2.0**-126, features.softcap or 0.0
    flat, rel = {"exp": (form.eps / 2, 8 * u), "tanh": (0.0, TANH_EPS), "approx": (0.0, TANH_APPROX_EPS)}[form.softcap]
    narrow = form.dropout_scale == "input" and features.keep and format_of(dtype).narrow
    # scale / cap, its double times log2 e, and 1 / cap.
    subnormal = cap > 0 and (0 < abs(scale) < 2 * w * max(1.0, cap) or cap > 1 / (4 * w))
    u_s = format_of(dtype).u if form.s_dtype == "input" and format_of(dtype).narrow else 0.0
    eta_s = format_of(dtype).eta if u_s else 0.0
    return FeatureCoefficients(
        cap_in=DIV_EPS,
        cap_dot=2 * w * cap * subnormal,
        cap_const=w * (2 * cap + 2),
        cap_flat=flat * _SECOND_ORDER,
        cap_rel=rel * _SECOND_ORDER,
        gain_product=form.softcap_slope == "product",
        # e: eps, both sums, a division and two products; its exponent is rounded twice, 2u each of 2 |x|.
        gain=(form.eps + 11 * u) * _SECOND_ORDER if form.softcap_slope == "product" else 8 * u,
        gain_slope=4 * u,
        bias=form.kappa_bias * u * _SECOND_ORDER + u_s * (1 + u_s),
        bias_const=(2 * w + 2 * eta_s) * features.biases,
        add=u * _SECOND_ORDER + u_s * (1 + u_s),
        drop=_scaled(features, u),
        # The factor itself, and its product with a weight, are rounded to the input dtype.
        drop_cast=2 * format_of(dtype).u if narrow else 0.0,
    )


def float64_features(features: Features) -> FeatureCoefficients:
    """Coefficients of a float64 oracle, whose tanh is within 2 ulp and whose derivative is `4 e / (1 + e)^2`."""
    u, w, cap = 2.0**-53, 2.0**-1022, features.softcap or 0.0
    return FeatureCoefficients(
        cap_in=u,
        cap_dot=2 * w * cap,
        cap_const=w * (2 * cap + 2),
        cap_flat=u,
        cap_rel=6 * u,
        gain_product=True,
        gain=13 * u,
        gain_slope=4 * u,
        bias=2 * u,
        bias_const=2 * w * features.biases,
        add=u,
        drop=_scaled(features, u),
        drop_cast=0.0,
    )
