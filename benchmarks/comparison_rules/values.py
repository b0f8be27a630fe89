"""Values that other generators draw and ours does not, as further regimes of a case.

Regimes are names that `Case` checks and `regime_values` looks up; `register` adds to both, so that a case of these values is
judged by the ordinary `judge_case`. What Hypothesis draws is unaffected: the strategies hold the list as it was imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.values.fill import Fill

__all__ = ["CONSTANTS", "register"]

Tensors = dict[str, Any]

CONSTANTS = ("one", "minus-one", "near-overflow", "smallest-normal", "one-plus-eps", "denormal")
"""The constant tensors of gpucheck's `edge_inputs` (src/gpucheck/fuzzing/inputs.py)."""


def register() -> None:
    """Makes the regimes known to this process; more calls change nothing."""
    import flashverify.case.space.strategies  # noqa: F401  binds the list before it grows
    from flashverify.case import sections as parts
    from flashverify.case.values import regimes

    missing = [name for name in _EXTRA if name not in parts.REGIMES]
    parts.REGIMES = (*parts.REGIMES, *missing)  # type: ignore[assignment]
    regimes._REGIMES.update({name: _EXTRA[name] for name in missing})


def _uniform(low: int, high: int) -> Callable[[Fill], Tensors]:
    """Uniform in [low, high] on a grid of 2^-16, exact in fp32."""
    return lambda fill: {name: fill.integers(name, low * 2**16, high * 2**16) * 2.0**-16 for name in fill.shapes}


def _constant(kind: str) -> Callable[[Fill], Tensors]:
    def regime(fill: Fill) -> Tensors:
        entry = fill.format
        value = {
            "one": 1.0,
            "minus-one": -1.0,
            "near-overflow": 0.99 * entry.max,
            "smallest-normal": 2.0**entry.emin,
            "one-plus-eps": 1.0 + 2.0**-entry.mantissa,
            "denormal": 2.0 ** (entry.emin - 1),
        }[kind]
        return {name: np.full(fill.shapes[name], value) for name in ("q", "k", "v")}

    return regime


_EXTRA: dict[str, Callable[[Fill], Tensors]] = {
    "uniform-10": _uniform(-10, 10),
    "uniform-01": _uniform(0, 1),
    "q-times-50": lambda fill: {"q": fill.normal("q") * 50.0},
    **{f"constant-{kind}": _constant(kind) for kind in CONSTANTS},
}
