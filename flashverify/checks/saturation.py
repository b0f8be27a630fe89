"""What a subject that promises `Contract.modifiers_saturate` is held to where a huge bias, slope or sink leaves no bound.

Two demands on the forward, both on finite inputs and on elements that have a bound in the same problem without those modifiers,
so that neither the products nor V overflow by themselves:

- O is no NaN, and LSE is finite.
- Where one logit stands so far above every other that no rounding and no clamp brings them together, O is its value alone: V of that
  key, or 0 where it is the sink.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.case.tensors import MODIFYING
from flashverify.checks.passes.logits import modified, products
from flashverify.judge.compare import Comparison, compare_output
from flashverify.judge.verdict import Status, Verdict
from flashverify.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.case.problem import Problem
    from flashverify.truth import Inputs

__all__ = ["SATURATED", "Held", "check_saturation"]

SATURATED = "saturated"
"""Mode of the comparison with the value of a logit that stands alone."""

_LARGEST = float.fromhex("0x1.fffffep127") * math.log(2)
"""What the largest finite number of fp32 is as a logit in base 2, natural units."""
_APART = 2.0**120
"""More than the roundings of logits of that size, of products of tf32 operands too."""
_PAIRS = 1 << 22


@dataclass(frozen=True, slots=True)
class Held:
    """The comparison of O where one logit stands alone, failures about NaN, and the number of elements that were looked at."""

    comparisons: list[Comparison]
    failures: list[Verdict]
    elements: int


def check_saturation(
    outputs: Mapping[str, torch.Tensor], truth: Truth, problem: Problem, undefined: Mapping[str, torch.Tensor]
) -> Held:
    """Judges the elements of O and LSE that only a bias, a slope or a sink exempts.

    Args:
        outputs: the subject's, by name: o `[B, Hq, Sq, Dv]`, lse `[B, Hq, Sq]`.
        truth: of the problem.
        problem: with finite inputs.
        undefined: per output the elements about which the contract says nothing.
    """
    given = [x for name in MODIFYING if (x := getattr(problem, name)) is not None]
    if not given:
        return Held([], [], 0)
    inputs, bounds = truth.inputs, {name: bound for name, (_, bound) in truth.forward().items()}
    lost = bool(torch.stack([bound.exempt.any() for bound in bounds.values()]).any())
    if not lost or not all(bool(torch.isfinite(x).all()) for x in given):
        return Held([], [], 0)
    bare = dataclasses.replace(inputs.without_learned(), biases=(), sink=None, do=None, dlse=None)
    asked = {}
    for name, (_, bound) in Truth(bare, truth.dtype, truth.form).forward().items():
        left_open = undefined.get(name)
        asked[name] = bounds[name].exempt & ~bound.exempt & (True if left_open is None else ~left_open)
    failures = [
        _failure(name, outputs[name], where)
        for name in asked
        if name in outputs and bool((where := asked[name] & _wrong(name, outputs[name])).any())
    ]
    comparisons = [] if "o" not in outputs else _alone(outputs["o"], truth, asked["o"])
    return Held(comparisons, failures, sum(int(asked[name].sum()) for name in asked if name in outputs))


def _wrong(name: str, x: torch.Tensor) -> torch.Tensor:
    """An O may overflow by its values; the logarithm of a sum of finite logits may not."""
    return torch.isnan(x) if name == "o" else ~torch.isfinite(x)


def _failure(name: str, x: torch.Tensor, where: torch.Tensor) -> Verdict:
    at = tuple(int(i) for i in where.nonzero()[0])
    return Verdict(
        check="nonfinite",
        status=Status.FAIL,
        output=name,
        error="saturation",
        index=at,
        message=(
            f"{name}{list(at)} is {float(x[at])}: every input is finite, and huge biases, slopes and sinks are promised to act as "
            f"the largest finite logit of their sign ({int(where.sum())} of {x.numel()} elements)"
        ),
    )


def _alone(o: torch.Tensor, truth: Truth, asked: torch.Tensor) -> list[Comparison]:
    """O of the rows in which one logit stands alone, against the problem in which such a row sees nothing but that key."""
    inputs = truth.inputs
    if inputs.q.shape[2] * inputs.k.shape[2] * inputs.q.shape[0] * inputs.q.shape[1] > _PAIRS:
        return []
    exact, clamped = _logits(inputs)
    winner, rows = exact.argmax(-1), _stands_alone(exact) & _stands_alone(clamped)
    rows = rows & (winner == clamped.argmax(-1))
    where = asked & rows.unsqueeze(-1) & ~torch.isnan(o)
    if not bool(where.any()):
        return []
    only = torch.zeros_like(exact, dtype=torch.bool).scatter_(-1, winner.unsqueeze(-1), True)
    single = dataclasses.replace(
        inputs,
        q=torch.zeros_like(inputs.q),
        visible=(only & rows.unsqueeze(-1))[..., : inputs.k.shape[2]],
        softcap=None,
        biases=(),
        bias_shape=None,
        sink=None,
        do=None,
        dlse=None,
    )
    value, bound = Truth(single, truth.dtype, truth.form).forward()["o"]
    return [compare_output("o", o, value, bound, mode=SATURATED, undefined=~where)]


def _logits(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits `[B, Hq, Sq, Sk]`, with a sink one column more: exact ones, and with each bias, sink and sum clamped; -inf where hidden."""
    shape = (*inputs.q.shape[:3], inputs.k.shape[2])
    scaled = products(inputs)
    exact = modified(scaled, inputs, inputs.biases)
    clamped = modified(scaled, inputs, [bias.double().clamp(-_LARGEST, _LARGEST) for bias in inputs.biases])
    clamped = clamped.clamp(-_LARGEST, _LARGEST)
    if inputs.visible is not None:
        hidden = ~inputs.visible.expand(shape)
        exact, clamped = exact.masked_fill(hidden, -torch.inf), clamped.masked_fill(hidden, -torch.inf)
    if inputs.sink is not None:
        sink = inputs.sink.double().view(1, -1, 1, 1).expand(*shape[:3], 1)
        exact = torch.cat([exact, sink], -1)
        clamped = torch.cat([clamped, sink.clamp(-_LARGEST, _LARGEST)], -1)
    return exact, clamped


def _stands_alone(logits: torch.Tensor) -> torch.Tensor:
    """Bool `[B, Hq, Sq]`: the largest logit of the row is by `_APART` above all others."""
    if logits.shape[-1] < 2:
        return torch.ones(logits.shape[:-1], dtype=torch.bool, device=logits.device)
    first, second = logits.topk(2, -1).values.unbind(-1)
    return first - second >= _APART
