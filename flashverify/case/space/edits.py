"""Draws of single elements that are overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.case import Edit
from flashverify.case.space.sampling import sampled_from
from flashverify.case.tensors import EDITABLE
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_edits"]

_HUGE = [sign * size for size in (2.0**95, 2.0**96, 2.0**100, 2.0**120, 1.875 * 2.0**127) for sign in (1.0, -1.0)]
"""Sinks, slopes and biases that leave fp32 in base 2, or on the way; finite in bf16."""


def draw_edits(draw: Draw, supports: Supports, case: Case) -> tuple[Edit, ...]:
    """One to three single elements inside the declared lengths; NaN and Inf where the subject has a contract for them."""
    entry = FORMATS[case.dtype]
    values = [0.0, 1.0, -1.0, -0.0, 1000.0, entry.min_subnormal, entry.max, -entry.max]
    values += [float("inf"), float("-inf"), float("nan")] * supports.non_finite
    # of bias, sink and slopes, whose non-finite values have no contract
    large = [-8192.0, 16384.0, *values[:5], -1000.0]
    large += _HUGE * supports.huge_modifiers
    shapes = case.editable
    declared = {"row": case.rows_inside, "key": case.keys_inside}

    def places(name: str) -> list[tuple[int, int]]:  # (sequence, declared length), the empty ones left out
        spec = EDITABLE[name]
        lengths = None if spec.finite else declared.get(spec.axes[2])
        lengths = lengths or (shapes[name][2],) * shapes[name][0]
        return [(b, length) for b, length in enumerate(lengths) if length]

    usable = [name for name in shapes if 0 not in shapes[name] and places(name)]
    if not case.grad.backward or case.grad.do in ("expanded", "zero"):
        usable = [name for name in usable if name != "do"]
    if not supports.wild_slopes:
        usable = [name for name in usable if name != "slopes"]
    edits: list[Edit] = []
    for _ in range(draw(sampled_from((1, 1, 2, 3))) if usable else 0):
        name = draw(sampled_from(usable))
        b, length = draw(sampled_from(places(name)))
        h, d = (draw(st.integers(0, shapes[name][axis] - 1)) for axis in (1, 3))
        choices = large if EDITABLE[name].finite else values
        if name == "bias":
            choices = [value for value in large if abs(value) <= entry.max]
        edits.append(Edit(name, (b, h, draw(st.integers(0, length - 1)), d), draw(sampled_from(choices))))
    return tuple(edits)
