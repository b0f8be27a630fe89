"""Confirmation of a minimal case by multi-precision arithmetic: the last word before a finding is reported."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import judged_form
from flashverify.checks.both_modes import CONDITIONAL, STRICT
from flashverify.checks.passes.execution import execute
from flashverify.checks.saturation import SATURATED
from flashverify.judge.record import Confirmation
from flashverify.judge.verdict import Verdict, to_hex
from flashverify.truth import Truth, exact_values, inputs_of
from flashverify.truth.empty_rows import dlse_of_empty_rows

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Contract, Subject

__all__ = ["confirm"]

_LARGEST = 1 << 14
"""Pairs of rows and keys, over all heads, that mpmath is asked for: some ten seconds."""

_CONFIRMABLE = {"accuracy": ("bound", "empty-row"), "nonfinite": ("nan", "inf", "finite")}


def confirm(subject: Subject, case: Case, verdict: Verdict) -> Confirmation:
    """Recomputes the element that `verdict` names with mpmath and compares it with what the subject returns now.

    Args:
        subject: the kernel under test.
        case: the minimal case.
        verdict: its failing verdict.

    Returns:
        The exact value, the subject's and the bound, and whether the exact value confirms the failure. `agrees` is None where
        the failure is no question of accuracy or the case is too large; `repeats` and `failed` are left at 0.
    """
    pairs = case.batch * case.heads_q * case.seq_q * case.seq_k
    if verdict.mode in (STRICT, SATURATED):  # what a correct kernel of this form gives is no exact value
        return Confirmation()
    if verdict.error not in _CONFIRMABLE.get(verdict.check, ()) or pairs > _LARGEST or not verdict.index:
        return Confirmation()
    problem, _ = materialize(case, subject.device())
    execution = execute(subject, problem)
    outputs = execution.outputs
    inputs, _ = inputs_of(problem)
    form = judged_form(subject, problem)
    truth = Truth(inputs, case.dtype, form)
    unit = 1.0 if form.lse_base == "e" else math.log(2.0)
    if verdict.mode == CONDITIONAL:
        o, lse, _ = truth.read(outputs["o"], outputs["lse"])
        exact = exact_values(inputs, given_o=o, given_lse=lse)
        bounds = truth.conditional(outputs["o"], outputs["lse"])
    else:
        exact = exact_values(inputs)
        bounds = truth.forward() | (truth.backward() if inputs.do is not None else {})
    expected = float(exact[verdict.output][verdict.index])
    if verdict.output == "lse":
        expected = expected / unit
    if expected == -math.inf and verdict.output == "lse":
        expected = _lse_of_empty_row(truth, subject.contract, verdict.index, unit)
    if verdict.output == "dsink" and truth.sums_sink and inputs.dlse is not None:
        expected += float(dlse_of_empty_rows(truth)[:, verdict.index[0]].sum())
    if verdict.output == "delta" and inputs.dlse is not None and form.stored_delta == "minus_dlse":
        empty_row = bool(truth.empty_rows[verdict.index])
        expected = 0.0 if empty_row else expected - float(inputs.dlse[verdict.index])
    bound = float(bounds[verdict.output][1].total[verdict.index])
    got = _element(outputs[verdict.output], verdict.index)
    return Confirmation(
        oracle="mpmath",
        expected=to_hex(expected),
        got=to_hex(got),
        bound=to_hex(bound),
        agrees=not (got == expected or abs(got - expected) <= bound),
    )


def _lse_of_empty_row(truth: Truth, contract: Contract, index: tuple[int, ...], unit: float) -> float:
    """The LSE that the contract gives a row that sees no key, in units of `unit` natural ones."""
    if truth.sums_sink and truth.inputs.sink is not None:
        return float(truth.inputs.sink[index[1]]) / unit
    return math.nan if contract.fixed_lse is None else contract.fixed_lse


def _element(tensor: torch.Tensor, index: tuple[int, ...]) -> float:
    return float(tensor[index])
