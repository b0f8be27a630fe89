"""The float64 oracle's own error E64: the same formulas at u = 2^-53 (docs/bounds.md, section 15)."""

import math
from functools import lru_cache

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
from flashverify.numerics.coefficients import OVERFLOW_FP32
from flashverify.numerics.features import Features, float64_features
from flashverify.numerics.primitives import dot_coefficient
from flashverify.numerics.shape import Shape

__all__ = ["float64_coefficients"]

_SMALLEST_BLOCK = 16


@lru_cache(maxsize=4096)
def float64_coefficients(shape: Shape, scale: float, features: Features | None = None) -> Coefficients:
    """Return the coefficients of a float64 oracle, one-shot or streaming over key blocks of any size from 16 up.

    The exponential and the logarithm of a libm are within one ulp: 2u; nothing is cast to a narrower format, the LSE is natural and neither the
    weights nor dS are rounded. Every condition number multiplies E64 as it multiplies B, so E64 / B stays near `2^-53 / 2^-24`.

    Args:
        shape: Sizes of the case.
        scale: Softmax scale, any sign.
        features: Softcap, biases, sink and dropout, or None.

    Returns:
        The coefficients.
    """
    u, w, sc = 2.0**-53, 2.0**-1022, abs(scale)
    eps = 2 * u
    blocks = math.ceil(shape.Sk / _SMALLEST_BLOCK)
    queries = shape.group * shape.Sq
    beside = None if features is None else float64_features(features)
    sink, factor = (False, 1.0) if features is None else (features.sink, features.factor)
    drop = 0.0 if beside is None else beside.drop
    dot_keys = dot_coefficient(shape.Sk, dtype="fp64") + u * blocks
    dot_queries = dot_coefficient(queries, dtype="fp64")
    up = max(1.0, sc)
    s_dot = dot_coefficient(shape.D, dtype="fp64") * sc + 2 * w
    return Coefficients.of(
        UnitCoefficients(u=u, w=w, flush=0.0),
        LogitCoefficients(
            s_dot_fwd=s_dot,
            s_dot_bwd=s_dot,
            s_abs=2 * u,
            s_max=0.0,
            s_const=w,
            s_flush=0.0,
            s_mean=0.0,
            s_mean_eta=0.0,
            prescale_fwd=0.0,
            prescale_bwd=0.0,
        ),
        WeightCoefficients(
            eps=eps,
            gap=2 * u,
            theta_fwd=eps + (eps + u) * (blocks + sink),
            theta_bwd=eps,
            merges=1,
            split=0.0,
            split_lse=0.0,
            row_sum=(shape.Sk + 2 * blocks + sink) * u,
            row_sum_rounded=False,
            u_p=0.0,
            eta_p=0.0,
            p_max=OVERFLOW_FP32,
        ),
        LseCoefficients(lg2=2.0**-52, lse_natural=True, base_fwd=3.0, base_bwd=0.0, base_bwd_conditional=0.0),
        OutputCoefficients(
            normalise="end",
            dot_keys=dot_keys + u * blocks,
            div=2 * u + drop,
            u_acc=0.0,
            eta_acc=0.0,
            eta_cast=0.0,
            acc_limit=OVERFLOW_FP32,
            u_partial=0.0,
            eta_partial=0.0,
            u_out=0.0,
            eta_out=w,
        ),
        DerivativeCoefficients(
            dot_v=dot_coefficient(shape.Dv, dtype="fp64") + drop,
            u_dp=0.0,
            eta_dp=0.0,
            dp_limit=OVERFLOW_FP32,
            dp_delta=False,
            delta_weights=False,
            weights_kept=False,
            ds_rounded_p=False,
            ds_cast=1.0,
            eta_ds=0.0,
        ),
        GradientCoefficients(
            dot_queries=dot_queries,
            u_grad=0.0,
            eta_grad=w,
            grad_scale=sc,
            operand=0.0,
            cast_q=dot_keys,
            cast_k=dot_queries,
            cast_v=dot_queries + drop,
            acc_q=OVERFLOW_FP32,
            acc_k=OVERFLOW_FP32,
            acc_v=OVERFLOW_FP32,
            const_q=shape.Sk * w * up,
            const_k=queries * w * up,
            const_v=queries * w * factor,
            prescaled_q=0.0,
            prescaled_k=0.0,
        ),
        features=beside,
    )
