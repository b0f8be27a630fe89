"""What each pair and each row of a backward has, beside which a number in the code of a kernel may stand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.backward_steps import steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

__all__ = ["QUANTITIES", "Quantity", "known_steps", "number_words", "usual_between", "usual_near"]

_KEPT = "steps of the backward"
_DIGITS = (1, 2, 3)
_LOG2_E = math.log2(math.e)


class Quantity(NamedTuple):
    """A number of each row or each pair.

    Attributes:
        words: where it stands, before `is below ...`.
        of: its values, which broadcast to `[B, Hq, Sq, Sk]`; None where a case has none.
        logarithm: whether kernels hold it in base 2 as well.
    """

    words: str
    of: Callable[[Scene, Steps], Tensor | None]
    logarithm: bool = False


QUANTITIES = (
    Quantity("at pairs whose weight", lambda _scene, s: s.p),
    Quantity("in rows whose LSE", lambda _scene, s: _of_rows(s, s.lse), True),
    Quantity(
        "in rows whose largest logit", lambda _scene, s: _of_rows(s, s.z.amax(-1)) if s.z.shape[-1] else None, True
    ),
    Quantity("in rows whose delta", lambda _scene, s: _of_rows(s, s.delta)),
    Quantity("in rows whose dLSE", lambda scene, s: None if scene.inputs.dlse is None else _of_rows(s, s.dlse)),
    Quantity("in rows whose largest weight", lambda _scene, s: _of_rows(s, s.p.amax(-1)) if s.p.shape[-1] else None),
    Quantity("at pairs whose |dS|", lambda _scene, s: (s.formula() * s.slope).abs()),
    Quantity("at pairs whose dP", lambda _scene, s: s.dp),
    Quantity("at pairs whose scaled product", lambda _scene, s: s.x),
    Quantity("at pairs whose logit", lambda _scene, s: s.z, True),
    Quantity("at pairs whose scaled product has a magnitude that", lambda _scene, s: s.x.abs()),
    Quantity("at pairs whose dP - delta + dLSE", lambda _scene, s: _bracket(s)),
    Quantity("in rows whose number of visible keys", lambda _scene, s: s.see.sum(-1, keepdim=True).double()),
    Quantity(
        "in rows whose sink has a weight that",
        lambda _scene, s: None if s.sink_weight is None else s.sink_weight.unsqueeze(-1),
    ),
)
"""Those that are tried, the likelier ones first."""


def _bracket(s: Steps) -> Tensor:
    return s.dp - s.delta.unsqueeze(-1) + s.dlse.unsqueeze(-1)


def known_steps(scene: Scene) -> Steps | None:
    """The declared steps of a run; None where its backward has nothing to start from."""
    if scene.inputs.do is None or scene.o is None or scene.lse is None:
        return None
    if _KEPT not in scene.memo:
        scene.memo[_KEPT] = steps_of(scene.inputs, scene.o, scene.lse)
    found: Steps = scene.memo[_KEPT]
    return found


def usual_between(low: float, high: float, *, logarithm: bool) -> Iterator[float]:
    """Numbers t with low < t <= high that a person would write, the shortest first.

    Args:
        low: of the interval, without it.
        high: of the interval, with it.
        logarithm: whether those of base 2 count as well.
    """
    found = [_shortest(low, high)]
    if logarithm:
        found.append(_shortest(low * _LOG2_E, high * _LOG2_E) / _LOG2_E)
    elif low > 0:
        power = 2.0 ** math.floor(math.log2(high))
        found += [power] if power > low else []
    yield from dict.fromkeys(found)


def usual_near(value: float, error: float, *, logarithm: bool) -> list[float]:
    """Numbers that a person would write within `error` of what was read, one of base 2 with them for a logarithm."""
    found = [_shortest(value - error, value + error)]
    if logarithm:
        found.insert(0, _shortest((value - error) * _LOG2_E, (value + error) * _LOG2_E) / _LOG2_E)
        found.sort(key=lambda each: min(_digits(each), _digits(each * _LOG2_E)))
    return list(dict.fromkeys(found))


def _digits(value: float) -> int:
    return len(f"{abs(value):.4g}".replace(".", ""))


def number_words(value: float, *, logarithm: bool) -> str:
    """A number in words, a natural logarithm in base 2 as well."""
    return f"{value:.4g} ({value * _LOG2_E:.4g} in base 2)" if logarithm and value else f"{value:.4g}"


def _of_rows(s: Steps, x: Tensor) -> Tensor:
    """Values of the rows that see a key; NaN, which is beside no number, in the others."""
    return x.masked_fill(~s.some, torch.nan).unsqueeze(-1)


def _shortest(low: float, high: float) -> float:
    """The number t with low < t <= high that has the fewest digits, the roundest of these."""
    if low < 0 <= high:
        return 0.0
    if high < 0:
        inner = _shortest(-high, -low)
        return -inner if -inner > low else high
    size = math.floor(math.log10(high)) if high > 0 else 0
    for digits in _DIGITS:
        unit = 10.0 ** (size - digits + 1)
        last = math.floor(high / unit * (1 + 1e-12))
        for coarse in (5, 2, 1):
            number = last // coarse * coarse * unit
            if number > low and number > 0:
                return float(f"{number:.6g}")
    return high
