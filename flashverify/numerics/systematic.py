"""The part of a bound whose errors may all point the same way (docs/bounds.md, section 22).

Rounding to nearest has no direction of its own, whatever is rounded. What may have one: the constants of the logits, the exponential, the
logarithm and the division, numbers of fp32 that are flushed, and the products of a matrix unit that truncates.
"""

import dataclasses

from flashverify.formats import FORMATS
from flashverify.numerics.coefficient_groups import Coefficients
from flashverify.numerics.form import Form
from flashverify.numerics.shape import Shape
from flashverify.numerics.truncation import truncation_of

__all__ = ["rounds_plainly", "without_rounding_to_nearest", "without_roundings"]

_PLAIN = Form()
_ROUND_TO_NEAREST = (
    "prescale_fwd",
    "prescale_bwd",
    "grad_uses_prescaled",
    "ds_from",
    "row_sum",
    "s_dtype",
    "pv_dtype",
    "dp_dtype",
    "o_accum",
    "k_smoothed",
    "partial_dtype",
    "grad_accum",
    "gqa_partial",
    "dropout_scale",
    "dbias_partial",
    "key_order",
    "p_dtype",
    "p_factor",
)


def without_roundings(form: Form) -> Form:
    """The form with fp32 outputs and without what rounds intermediate values to the input dtype."""
    plain = {name: getattr(_PLAIN, name) for name in _ROUND_TO_NEAREST}
    return dataclasses.replace(form, **plain, out_dtype="fp32", grad_dtype="fp32")


def rounds_plainly(form: Form) -> bool:
    """Whether a kernel of the form rounds nothing to the input dtype but P, dS, O and the gradients, once each."""
    kept = {name: getattr(form, name) for name in ("out_dtype", "grad_dtype", "key_order")}
    return dataclasses.replace(without_roundings(form), **kept) == form


def without_rounding_to_nearest(c: Coefficients, form: Form, dtype: str, shape: Shape) -> Coefficients:
    """The coefficients of such a form without the cast of P and of dS, and without dots and sums unless a matrix unit truncates them.

    What it truncates in the sums over V, K, Q and dO is `Coefficients.truncation`, and no part of the casts.
    """
    narrow = FORMATS[dtype].narrow
    truncates = form.architecture != "ieee" and (narrow or form.dot != "ieee")
    casts = {
        f"cast_{name}": max(getattr(c, f"cast_{name}") - c.u_p * (1 + dot) - dot * (1 - truncates * (not narrow)), 0.0)
        for name, dot in (("q", c.dot_keys), ("k", c.dot_queries), ("v", c.dot_queries))
    }
    dots = {
        name: getattr(c, name) * float(truncates)
        for name in ("s_dot_fwd", "s_dot_bwd", "dot_keys", "dot_v", "dot_queries", "row_sum")
    }
    lost = truncation_of(dtype, form.architecture, shape.group * shape.Sq) if truncates and narrow else None
    return dataclasses.replace(c, u_p=0.0, eta_p=0.0, eta_ds=0.0, truncation=lost, **dots, **casts)
