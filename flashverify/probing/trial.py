"""One case: what the subject does with it, and which reading of the case its outputs fit."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from flashverify.case.memory.host import on_cpu
from flashverify.case.memory.materialize import materialize
from flashverify.case.tensors import TENSORS
from flashverify.case.text import parse_case
from flashverify.checks.accuracy import judged_form, shape_failures
from flashverify.checks.left_open import outside
from flashverify.checks.passes.execution import execute
from flashverify.diagnosis.references import backward_asked, forward_asked
from flashverify.probing.answers import Empty, Reading, Returned, Seen
from flashverify.probing.reads import reads_of, watched
from flashverify.probing.view import view_of
from flashverify.truth import Truth, inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.execution import Execution
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.numerics.form import Form
    from flashverify.probing.questions import Trial
    from flashverify.subjects.interface import Subject

__all__ = ["outcome_of", "raised_text"]

_LONGEST = 300
LOST = 1e300
"""Stands for infinity, which JSON has not."""


def raised_text(error: BaseException) -> str:
    """An exception in a line: its kind and the beginning of its text."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:_LONGEST]}"


def outcome_of(subject: Subject, trial: Trial) -> Seen:
    """Runs the case of a trial, and compares the outputs with each reading."""
    case = parse_case(trial.case)
    view, returned = view_of(subject, trial.assumed)
    problem, _arena = materialize(case, subject.device())
    with reads_of() as reads:
        try:
            execution = execute(view, watched(_pages_alone(problem) if trial.pages_alone else problem))
        except Exception as error:
            return Seen(dtype=case.dtype, raised=raised_text(error), read=tuple(sorted(reads)), returned=dict(returned))
    outputs = {name: x for name, x in execution.outputs.items() if name not in trial.assumed.ignored}
    execution = dataclasses.replace(execution, problem=problem, outputs=outputs)
    read, names = tuple(sorted(reads)), tuple(execution.outputs)
    wrong = shape_failures(execution)
    if wrong or not names:
        unusable = wrong[0].message if wrong else "it returned nothing"
        return Seen(dtype=case.dtype, read=read, outputs=names, returned=dict(returned), unusable=unusable)
    seen = _compared_with(view, execution, {"asked": case} | _parsed(trial.readings), read, returned)
    return msgspec.structs.replace(seen, refused=subject.supports.refusal(case) or "")


def _pages_alone(problem: Problem) -> Problem:
    """The problem with k and v that nobody can use outside the pages."""
    k, v = (torch.full_like(x, math.nan) for x in (problem.k, problem.v))
    return dataclasses.replace(problem, k=k, v=v)


def _parsed(readings: Mapping[str, str]) -> dict[str, Case]:
    return {name: parse_case(text) for name, text in readings.items()}


def _compared_with(
    view: Subject,
    execution: Execution,
    readings: Mapping[str, Case],
    read: tuple[str, ...],
    returned: Mapping[str, Returned],
) -> Seen:
    """Every reading beside the outputs; rows without keys and what lies outside the lengths are told apart."""
    problem = on_cpu(execution.problem)
    outputs = {name: tensor.detach().cpu().double() for name, tensor in execution.outputs.items()}
    form = judged_form(view, problem)
    found: dict[str, Reading] = {}
    failure, empty, bases = "", Empty(), {}
    beyond = outside(problem)
    for name, case in readings.items():
        truth, expected = _expectations(_of_case(problem, case), form, view)
        found[name] = _reading(expected, outputs, truth, beyond)
        if name == "asked":
            failure = "" if found[name].right else _words(expected, outputs, truth, beyond)
            empty = _empty_rows(truth, problem, outputs, beyond)
            bases = _bases(truth, outputs, beyond)
    return Seen(
        dtype=problem.case.dtype,
        read=read,
        outputs=tuple(outputs),
        returned=dict(returned),
        readings=found,
        bases=bases,
        empty=empty,
        outside={name: _held(outputs[name], mask) for name, mask in beyond.items() if name in outputs},
        failure=failure,
    )


def _of_case(problem: Problem, case: Case) -> Problem:
    """The tensors of a problem read as another case of the same shape: those of parts that it does not have are left out."""
    dropped: dict[str, Any] = {
        name: None
        for name, spec in TENSORS.items()
        if (spec.shape is not None and spec.shape(case) is None)
        or (spec.values is not None and spec.values(case) is None)
    }
    return dataclasses.replace(problem, case=case, **dropped)


def _expectations(problem: Problem, form: Form, view: Subject) -> tuple[Truth, Expectations]:
    inputs, _ = inputs_of(problem)
    inputs = inputs.dense()
    truth = Truth(inputs, problem.case.dtype, form)
    expected = forward_asked(truth, problem, view.contract)
    if inputs.do is not None:
        expected |= backward_asked(truth, problem, None, None)
    return truth, expected


def _compared(
    expected: Expectations, outputs: Mapping[str, Tensor], truth: Truth, beyond: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Per output the elements about which something is asked, and those of them that are outside their bounds."""
    empty = truth.empty_rows
    for name, wanted in expected.items():
        if name not in outputs:
            continue
        free = torch.zeros_like(outputs[name], dtype=torch.bool)
        if name in ("o", "lse"):
            free = free | (empty.unsqueeze(-1) if name == "o" else empty)
        if name in beyond:
            free = free | beyond[name]
        yield name, ~free, ~wanted.holds(outputs[name], free)


def _reading(
    expected: Expectations, outputs: Mapping[str, Tensor], truth: Truth, beyond: Mapping[str, Tensor]
) -> Reading:
    failing, ratio, distances = [], 0.0, {}
    for name, asked, wrong in _compared(expected, outputs, truth, beyond):
        wanted, got = expected[name], outputs[name]
        if bool(wrong.any()):
            failing.append(name)
        error = torch.where(asked, got - wanted.value, 0.0)
        beside = torch.where(error == 0, 0.0, error.abs() / wanted.total).nan_to_num(LOST, LOST, LOST)
        ratio = max(ratio, float(beside.amax()) if beside.numel() else 0.0)
        distances[name] = _apart(error[asked], wanted.value[asked])
    return Reading(failing=tuple(failing), ratio=ratio, distances=distances)


def _apart(error: Tensor, value: Tensor) -> float:
    """Squared error beside squared size, of finite elements; `LOST` where some are not finite."""
    if bool((torch.isfinite(value) & ~torch.isfinite(error)).any()):
        return LOST
    kept = torch.isfinite(value)
    size = float((value[kept] ** 2).sum())
    squared = float((error[kept] ** 2).sum())
    return min(squared / size, LOST) if size else LOST if squared else 0.0


def _words(expected: Expectations, outputs: Mapping[str, Tensor], truth: Truth, beyond: Mapping[str, Tensor]) -> str:
    """A sentence about the element that is furthest outside its bound."""
    worst, found = -1.0, ""
    for name, _, wrong in _compared(expected, outputs, truth, beyond):
        if not bool(wrong.any()):
            continue
        wanted, got = expected[name], outputs[name]
        ratio = torch.where(wrong, ((got - wanted.value).abs() / wanted.total).nan_to_num(LOST, LOST, LOST), -1.0)
        at = int(ratio.reshape(-1).argmax())
        if float(ratio.reshape(-1)[at]) > worst:
            worst = float(ratio.reshape(-1)[at])
            index = [int(i) for i in np.unravel_index(at, got.shape)]
            values = (float(x.reshape(-1)[at]) for x in (got, wanted.value, wanted.total))
            found = "{}{} is {:.6g} where the exact value is {:.6g}, bound {:.3g} ({} of {} elements)".format(
                name, index, *values, int(wrong.sum()), got.numel()
            )
    return found


def _empty_rows(truth: Truth, problem: Problem, outputs: Mapping[str, Tensor], beyond: Mapping[str, Tensor]) -> Empty:
    rows = truth.empty_rows
    if "lse" in beyond:
        rows = rows & ~beyond["lse"]
    if not bool(rows.any()):
        return Empty()
    group = problem.q.shape[1] // problem.k.shape[1]
    mean = problem.v.double().mean(2, keepdim=True).repeat_interleave(group, 1).expand_as(outputs["o"])
    return Empty(
        o=_held(outputs["o"], rows.unsqueeze(-1), mean), lse=_held(outputs["lse"], rows) if "lse" in outputs else ""
    )


def _held(tensor: Tensor, where: Tensor, mean: Tensor | None = None) -> str:
    """What the elements `where` hold: a number, `nan`, `mean of v` or `several values`; empty where there are none."""
    where = where.expand_as(tensor)
    values = tensor[where]
    if not values.numel():
        return ""
    if bool(torch.isnan(values).all()):
        return "nan"
    if bool((values == values[0]).all()):
        return repr(float(values[0]) or 0.0)
    if mean is not None and torch.allclose(values, mean[where], rtol=2e-2, atol=2e-2):
        return "mean of v"
    return "several values"


def _bases(truth: Truth, outputs: Mapping[str, Tensor], beyond: Mapping[str, Tensor]) -> dict[str, float]:
    if "lse" not in outputs:
        return {}
    unit = 1.0 if truth.form.lse_base == "e" else math.log(2.0)
    natural = truth.forward()["lse"][0] * unit
    asked = ~truth.empty_rows & torch.isfinite(natural)
    if "lse" in beyond:
        asked = asked & ~beyond["lse"].expand_as(asked)
    got = outputs["lse"]
    return {
        base: _apart((got - natural / size)[asked], (natural / size)[asked])
        for base, size in (("e", 1.0), ("2", math.log(2.0)))
    }
