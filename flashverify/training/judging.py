"""The subject's outputs in one layer of one step, against float64 given the same q, k, v and dO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.checks.accuracy import check_accuracy, judged_form, shape_failures
from flashverify.checks.passes.execution import Execution
from flashverify.checks.statistics.judged import errors_of
from flashverify.training.fractions import Fraction
from flashverify.training.record import Finding, Judged
from flashverify.truth import Truth, inputs_of

if TYPE_CHECKING:
    from flashverify.subjects.interface import Subject
    from flashverify.training.attention import Call

__all__ = ["OUTPUTS", "Judging"]

OUTPUTS = ("o", "dq", "dk", "dv")


@dataclass(frozen=True, slots=True)
class Findings:
    """What a layer of a step says: its outputs, the bounds of their errors by name, and what failed."""

    judged: tuple[Judged, ...]
    bounds: dict[str, torch.Tensor]
    found: tuple[Finding, ...]


class Judging:
    """Judges every layer of every step, and keeps what all steps say together.

    Args:
        subject: the kernel under test.
        layers: of the model.
    """

    def __init__(self, subject: Subject, layers: int) -> None:
        self._subject = subject
        questions = layers * len(OUTPUTS)
        self._fractions = {(layer, name): Fraction(questions) for layer in range(layers) for name in OUTPUTS}

    def judge(self, step: int, layer: int, call: Call) -> Findings:
        """Every element within its bound, the norms, and the fraction over all steps so far."""
        problem, subject = call.problem, self._subject
        wanted = {"dq", "dk", "dv"} | ({"lse"} if subject.contract.lse_base is not None else set())
        missing = tuple(name for name in sorted(wanted) if name not in call.outputs)
        execution = Execution(problem, call.outputs, {}, (), missing=missing)
        failures = shape_failures(execution)
        if failures:
            return Findings((), {}, tuple(Finding(
                kind=x.check, step=step, what=x.output, layer=layer, message=x.message) for x in failures))  # fmt: skip
        failures = check_accuracy(subject, execution).failures()
        found = [
            Finding(kind=x.check, step=step, what=x.output, layer=layer, message=x.message)
            for x in {x.output: x for x in reversed(failures)}.values()
        ]
        truth = Truth(inputs_of(problem)[0], problem.case.dtype, judged_form(subject, problem))
        pairs = truth.forward() | truth.widest()
        grouped = errors_of(subject, problem, call.outputs) if problem.case.dtype != "fp32" else {}
        judged, bounds = [], {}
        for name in OUTPUTS:
            value, bound = pairs[name][0], pairs[name][1].total
            bounds[name] = bound
            error, fraction = call.outputs[name].double() - value, self._fractions[layer, name]
            if name in grouped:
                fraction.add_errors(grouped[name])
            else:
                fraction.add_bounds(error, value, bound)
            low, high = fraction.interval()
            size = max(float(value.norm()), 1e-300)
            one = Judged(
                layer=layer,
                output=name,
                ratio=float(torch.where(error == 0, 0.0, error.abs() / bound).max()),
                error=float(error.norm()) / size,
                bound=float(bound.norm()) / size,
                low=low,
                high=high,
            )
            judged.append(one)
            if low > 0 or high < 0:
                found.append(_systematic(step, one))
        return Findings(tuple(judged), bounds, tuple(found))


def _systematic(step: int, one: Judged) -> Finding:
    way, least, most = "large" if one.low > 0 else "small", *sorted((abs(one.low), abs(one.high)))
    message = (
        f"{one.output} of layer {one.layer} is too {way} by a common fraction between {least:.2g} and {most:.2g}, "
        f"seen over {step + 1} step{'s' if step else ''}; errors without a direction do not add up so"
    )
    return Finding(kind="systematic", step=step, what=one.output, layer=one.layer, message=message)
