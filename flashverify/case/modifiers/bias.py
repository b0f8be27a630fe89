"""An additive bias: `full` [B, Hq, Sq, Sk], `head` [1, Hq, Sq, Sk] or `shared` [1, 1, Sq, Sk]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.modifiers.modifier import FAR, Modifier
from flashverify.case.require import require
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.masks.part import Source
    from flashverify.case.supports import Supports
    from flashverify.case.values.philox import Reals

__all__ = ["BIAS", "bias_values"]


def bias_values(case: Case) -> Reals:
    """The bias, `[B or 1, Hq or 1, Sq, Sk]`: as the regime says where it is about the values of inputs, else by seed modulo 8.

    0 to 3: normal; 4: zeros; 5: normal, a quarter of the pairs at `FAR`; 6: normal times 8; 7: integers around `FAR`.
    """
    import numpy as np

    from flashverify.case.values import philox
    from flashverify.formats import FORMATS

    shape, seed, entry = case.shape_bias, case.values.seed, FORMATS[case.dtype]
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


class _Bias(Modifier):
    name = "bias"
    tensors = (
        TensorSpec(
            name="bias",
            axes=("batch", "head_q", "row", "key"),
            dtype="case",
            values=bias_values,
            shape=lambda case: case.shape_bias if case.logits.bias is not None else None,
            editable=True,
            finite=True,
            replaceable=True,
        ),
    )

    def check(self, value: Any) -> None:
        """One of the three kinds."""
        require(value in (None, "full", "head", "shared"), "bias", value, "None, 'full', 'head' or 'shared'")

    def parse(self, text: str) -> str:
        """The kind."""
        return text

    def format(self, value: Any) -> str:
        """The kind."""
        return str(value)

    def draw(self, source: Source, supports: Supports) -> Any:
        """Any kind."""
        return source.choice(("shared", "head", "full"))

    def simpler(self, value: Any) -> Iterator[str]:
        """One for all sequences, then one for all heads."""
        if value == "full":
            yield "head"
        yield "shared"


BIAS = _Bias()
