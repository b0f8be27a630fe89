"""Sinks: one more column with V = 0 in every row that sees a key, a logit per query head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.codec import yes_or_no, yes_or_no_text
from flashverify.case.modifiers.modifier import FAR, Modifier
from flashverify.case.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.masks.part import Source
    from flashverify.case.supports import Supports
    from flashverify.case.values.philox import Reals

__all__ = ["SINK", "sink_values"]

_DOMINATING = 64.0


def sink_values(case: Case) -> Reals:
    """The sinks, `[Hq]`: normal, or as the regime says; from seed 8 on one head in six each dominates, vanishes, is all there is.

    Zeros and small integers are those of the regimes of that name.
    """
    import numpy as np

    from flashverify.case.values import philox

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


class _Sink(Modifier):
    name = "sink"
    absent = False
    tensors = (
        TensorSpec(
            name="sink",
            axes=("head_q",),
            dtype="fp32",
            values=sink_values,
            shape=lambda case: (case.heads_q,) if case.logits.sink else None,
            editable=True,
            finite=True,
            replaceable=True,
        ),
    )

    def check(self, value: Any) -> None:
        """Whether there are sinks."""

    def parse(self, text: str) -> bool:
        """`yes` or `no`."""
        return yes_or_no(text)

    def format(self, value: Any) -> str:
        """`yes` or `no`."""
        return yes_or_no_text(value)

    def draw(self, source: Source, supports: Supports) -> bool:
        """There is one way to have sinks."""
        return True


SINK = _Sink()
