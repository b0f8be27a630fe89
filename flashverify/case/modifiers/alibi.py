"""ALiBi: -slope * |i + shift - j| is added, with a slope per query head."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from flashverify.case.codec import yes_or_no_text
from flashverify.case.modifiers.modifier import Modifier
from flashverify.case.require import require
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.part import Source
    from flashverify.case.supports import Supports
    from flashverify.case.values.philox import Reals

__all__ = ["ALIBI", "STEEPEST", "acting_slopes", "slope_values"]

STEEPEST = 2.0**96 * math.log(2)
"""A slope of ALiBi beyond this acts as one of this size, 2^96 in base 2: its product with a distance lies within fp32."""


def slope_values(case: Case) -> Reals:
    """The slopes of ALiBi, `[Hq]`: 2^(-8 (h + 1) / Hq); wild ones of either sign, 2^-8 to 2^14 in magnitude, 11 bits each."""
    import numpy as np

    from flashverify.case.values import philox

    if case.logits.alibi == "wild":
        seed, shape = case.values.seed, (case.heads_q,)
        exponents = philox.integers(seed, "slopes/exponent", shape, -8, 13)
        fractions = philox.integers(seed, "slopes/fraction", shape, 1024, 2047) / 1024
        return philox.signs(seed, "slopes/sign", shape) * fractions * 2.0**exponents
    return np.array([2.0 ** (-8 * (head + 1) / case.heads_q) for head in range(case.heads_q)], dtype=np.float64)


def acting_slopes(slopes: torch.Tensor) -> torch.Tensor:
    """The slopes in float64, those beyond `STEEPEST` as that; only subjects with `Supports.huge_modifiers` are given any."""
    return slopes.double().clamp(-STEEPEST, STEEPEST)


class _Alibi(Modifier):
    name = "alibi"
    follows: Literal["distance", "number", ""] = "distance"
    absent = False
    tensors = (
        TensorSpec(
            name="slopes",
            axes=("head_q",),
            dtype="fp32",
            values=slope_values,
            shape=lambda case: (case.heads_q,) if case.logits.alibi else None,
            editable=True,
            finite=True,
        ),
    )

    def check(self, value: Any) -> None:
        """Whether there are slopes, and which."""
        require(value in (False, True, "wild"), "alibi", value, "False, True or 'wild'")

    def parse(self, text: str) -> bool | str:
        """`yes`, `no` or `wild`."""
        if text not in ("yes", "no", "wild"):
            raise ValueError("yes, no or wild")
        return text if text == "wild" else text == "yes"

    def format(self, value: Any) -> str:
        """`yes`, `no` or `wild`."""
        return value if isinstance(value, str) else yes_or_no_text(value)

    def draw(self, source: Source, supports: Supports) -> Any:
        """The usual slopes, or wild ones where the subject takes them."""
        return source.choice((True, True, *("wild",) * supports.wild_slopes))


ALIBI = _Alibi()
