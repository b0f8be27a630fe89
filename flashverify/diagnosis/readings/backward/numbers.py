"""Numbers that stand in formulas, by name: what a coefficient that was read may be."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.diagnosis.observation import Scene

__all__ = ["NAMED", "ONE", "ZERO", "Number", "numbers_near"]


class Number(NamedTuple):
    """A coefficient.

    Attributes:
        words: its name.
        of: its value on a case.
        cost: how surprising it is.
    """

    words: str
    of: Callable[[Scene], float]
    cost: float = 1.0


ZERO = Number("0", lambda _scene: 0.0)
ONE = Number("1", lambda _scene: 1.0, 0.0)


def _padded(dim: int) -> int:
    return max(16, 1 << (dim - 1).bit_length())


def _over_scale(scene: Scene, dim: int) -> float:
    return 1.0 / (scene.inputs.scale * math.sqrt(dim)) if scene.inputs.scale else math.nan


NAMED = (
    ZERO,
    ONE,
    Number("2", lambda _scene: 2.0),
    Number("1/2", lambda _scene: 0.5),
    Number("-1", lambda _scene: -1.0),
    Number("-2", lambda _scene: -2.0, 1.3),
    Number("3", lambda _scene: 3.0, 1.3),
    Number("4", lambda _scene: 4.0, 1.3),
    Number("1/4", lambda _scene: 0.25, 1.3),
    Number("the scale", lambda scene: scene.inputs.scale, 1.1),
    Number("1 / scale", lambda scene: 1.0 / scene.inputs.scale if scene.inputs.scale else math.nan, 1.1),
    Number("ln 2", lambda _scene: math.log(2.0), 1.1),
    Number("log2(e)", lambda _scene: 1.0 / math.log(2.0), 1.1),
    Number("the number of query heads of a group", lambda scene: float(scene.group), 1.1),
    Number("1 / the number of query heads of a group", lambda scene: 1.0 / scene.group, 1.1),
    Number("the number of sequences", lambda scene: float(scene.case.batch), 1.2),
    Number("1 / the number of sequences", lambda scene: 1.0 / scene.case.batch, 1.2),
    Number("1 / Sq", lambda scene: 1.0 / max(1, scene.case.seq_q), 1.2),
    Number("1 / Sk", lambda scene: 1.0 / max(1, scene.case.seq_k), 1.2),
    Number("1 / sqrt(Sq)", lambda scene: max(1, scene.case.seq_q) ** -0.5, 1.4),
    Number("1 / sqrt(Sk)", lambda scene: max(1, scene.case.seq_k) ** -0.5, 1.4),
    Number("1 / Dv", lambda scene: 1.0 / scene.case.dim_v, 1.2),
    Number("1 / D", lambda scene: 1.0 / scene.case.dim_qk, 1.2),
    Number("1 - p", lambda scene: 1.0 - scene.case.dropout, 1.1),
    Number("1 / (1 - p)", lambda scene: 1.0 / (1.0 - scene.case.dropout), 1.1),
    Number("the softcap", lambda scene: scene.inputs.softcap or math.nan, 1.2),
    Number("1 / softcap", lambda scene: 1.0 / (scene.inputs.softcap or math.nan), 1.2),
    Number("the number of query heads", lambda scene: float(scene.case.heads_q), 1.25),
    Number("1 / the number of query heads", lambda scene: 1.0 / scene.case.heads_q, 1.25),
    Number("1 / the number of kv heads", lambda scene: 1.0 / scene.case.heads_kv, 1.25),
    Number("the square of the scale", lambda scene: scene.inputs.scale**2, 1.3),
    Number("the root of the scale", lambda scene: math.sqrt(max(scene.inputs.scale, 0.0)) or math.nan, 1.3),
    Number("-1 times the scale", lambda scene: -scene.inputs.scale, 1.3),
    Number("sqrt(D / Dv)", lambda scene: math.sqrt(scene.case.dim_qk / scene.case.dim_v), 1.3),
    Number("sqrt(Dv / D)", lambda scene: math.sqrt(scene.case.dim_v / scene.case.dim_qk), 1.3),
    Number(
        "sqrt(D / the power of two, at least 16, to which D is padded)",
        lambda scene: math.sqrt(scene.case.dim_qk / _padded(scene.case.dim_qk)),
        1.4,
    ),
    Number(
        "D / the power of two, at least 16, to which D is padded",
        lambda scene: scene.case.dim_qk / _padded(scene.case.dim_qk),
        1.4,
    ),
    Number("log2(e)^2", lambda _scene: math.log(2.0) ** -2.0, 1.4),
    Number("ln(2)^2", lambda _scene: math.log(2.0) ** 2.0, 1.4),
    Number("1 / (scale * sqrt(D))", lambda scene: _over_scale(scene, scene.case.dim_qk), 1.4),
    Number("1 / (scale * sqrt(Dv))", lambda scene: _over_scale(scene, scene.case.dim_v), 1.4),
    Number(
        "1 / (scale * sqrt(the power of two, at least 16, to which D is padded))",
        lambda scene: _over_scale(scene, _padded(scene.case.dim_qk)),
        1.45,
    ),
    Number("p", lambda scene: scene.case.dropout or math.nan, 1.3),
    Number("1 / (1 - p)^2", lambda scene: (1.0 - scene.case.dropout) ** -2.0, 1.3),
)
"""Numbers with a name."""


def numbers_near(value: float, error: float, scene: Scene) -> list[Number]:
    """Names that a coefficient may have, the likeliest first; the number itself where it has none.

    Args:
        value: that was read.
        error: of it.
        scene: of the case.
    """
    found = [each for each in NAMED if abs(each.of(scene) - value) <= error]
    if found:
        certain = [each for each in found if each in (ZERO, ONE)]
        return certain[:1] or sorted(found, key=lambda each: each.cost)
    digits = float(f"{value:.3g}")
    number = digits if abs(digits - value) <= max(error, 1e-4 * abs(value)) else value
    return [Number(f"{number:.6g}", lambda _scene: number, 2.0)]
