"""Values of what modifies the logits: bias, sink and the slopes of ALiBi. Exact in fp32, from raw Philox words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.values import philox
from flashverify.case.values.bits import FORMATS

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.values.philox import Reals

__all__ = ["FAR", "STEEPEST", "acting_slopes", "bias_shape", "bias_values", "sink_values", "slope_values"]

FAR = -(2.0**13)
"""What stands for -1e4, the number that hides a pair where no mask is at hand; exact in every dtype."""

STEEPEST = 2.0**96 * math.log(2)
"""A slope of ALiBi beyond this acts as one of this size, 2^96 in base 2: its product with a distance lies within fp32."""

_DOMINATING = 64.0


def bias_shape(case: Case) -> tuple[int, int, int, int]:
    """`[B or 1, Hq or 1, Sq, Sk]` by the kind of bias."""
    return case.shape_bias


def bias_values(case: Case) -> Reals:
    """The bias, `[B or 1, Hq or 1, Sq, Sk]`: as the regime says where it is about the values of inputs, else by seed modulo 8.

    0 to 3: normal; 4: zeros; 5: normal, a quarter of the pairs at `FAR`; 6: normal times 8; 7: integers around `FAR`.
    """
    shape, seed, entry = bias_shape(case), case.values.seed, FORMATS[case.dtype]
    regime, kind = case.values.regime, case.values.seed % 8
    if regime == "zeros" or (kind == 4 and regime not in ("integers", "subnormal", "tiny")):
        return np.zeros(shape)
    if regime == "integers":
        return philox.integers(seed, "bias", shape, -2, 2)
    if regime == "subnormal":
        limit = 2**entry.mantissa - 1
        return philox.integers(seed, "bias", shape, -limit, limit) * entry.min_subnormal
    if kind == 7 and regime != "tiny":
        return philox.integers(seed, "bias", shape, -16, 16) + FAR
    values = philox.normal(seed, "bias", shape)
    if regime == "tiny":
        return values * 2.0 ** (entry.emin + 6)
    if kind == 5:
        values[philox.integers(seed, "bias/far", shape, 0, 3) == 0] = FAR
    if kind == 6:
        values *= 8.0
    return values


def sink_values(case: Case) -> Reals:
    """The sinks, `[Hq]`: normal, or as the regime says; from seed 8 on one head in six each dominates, vanishes, is all there is.

    Zeros and small integers are those of the regimes of that name.
    """
    shape, seed = (case.heads_q,), case.values.seed
    if case.values.regime == "zeros":
        return np.zeros(shape)
    if case.values.regime == "integers":
        return philox.integers(seed, "sink", shape, -2, 2)
    values = philox.normal(seed, "sink", shape)
    if seed >= 8:
        kinds = philox.integers(seed, "sink/kinds", shape, 0, 5)
        for kind, value in ((3, _DOMINATING), (4, FAR), (5, -FAR)):
            values[kinds == kind] = value
    return values


def slope_values(case: Case) -> Reals:
    """The slopes of ALiBi, `[Hq]`: 2^(-8 (h + 1) / Hq); wild ones of either sign, 2^-8 to 2^14 in magnitude, 11 bits each."""
    if case.logits.alibi == "wild":
        seed, shape = case.values.seed, (case.heads_q,)
        exponents = philox.integers(seed, "slopes/exponent", shape, -8, 13)
        fractions = philox.integers(seed, "slopes/fraction", shape, 1024, 2047) / 1024
        return philox.signs(seed, "slopes/sign", shape) * fractions * 2.0**exponents
    return np.array([2.0 ** (-8 * (head + 1) / case.heads_q) for head in range(case.heads_q)], dtype=np.float64)


def acting_slopes(slopes: torch.Tensor) -> torch.Tensor:
    """The slopes in float64, those beyond `STEEPEST` as that; only subjects with `Supports.huge_modifiers` are given any."""
    return slopes.double().clamp(-STEEPEST, STEEPEST)
