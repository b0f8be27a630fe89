"""Running a subject on a case to see what hypotheses are held against."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from flashverify.case.masks.positions import positions
from flashverify.case.memory.host import on_cpu
from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import (
    judged_form,
    shape_failures,
    tainted,
)
from flashverify.checks.both_modes import finite_stored
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.execution import execute
from flashverify.diagnosis.expected import of_bound
from flashverify.diagnosis.observation import Scene
from flashverify.diagnosis.references import backward_asked, forward_asked
from flashverify.outputs import rows_reach
from flashverify.truth import Truth, inputs_of

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.execution import Execution
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.subjects.interface import Subject

__all__ = ["look", "seen"]


def look(subject: Subject, case: Case) -> Scene | None:
    """Runs the subject on `case`; None where its outputs have the wrong shape or nothing can be compared.

    Raises:
        Exception: whatever the subject raises.
    """
    problem, _ = materialize(case, subject.device())
    return seen(subject, problem, execute(subject, problem))


def seen(subject: Subject, problem: Problem, execution: Execution, *, like: Scene | None = None) -> Scene | None:
    """The outputs of a run held against a problem; None where they have the wrong shape or nothing can be compared.

    Args:
        subject: that was run.
        problem: the one whose values and bounds count; its tensors hold what they held when it was run.
        execution: the run.
        like: an earlier run of the same problem, whose values and bounds are taken.
    """
    if shape_failures(execution) or not execution.outputs:
        return None
    problem, case = on_cpu(problem), problem.case
    inputs, tidy = inputs_of(problem)
    if like is None:
        inputs, form = inputs.dense(), judged_form(subject, problem)
        truth = Truth(inputs, case.dtype, form)
    else:
        inputs, form, truth = like.inputs, like.form, like.truth
    outputs = {name: tensor.detach().cpu().double() for name, tensor in execution.outputs.items()}
    free = tainted(tidy, form)
    for name, mask in undefined_elements(problem, subject.contract).items():
        free[name] = free[name] | mask if name in free else mask
    right = forward_asked(truth, problem, subject.contract)
    empty = truth.empty_rows.unsqueeze(-1)
    for name, pair in truth.strict().items():
        strict = of_bound(*pair).pinned(empty, subject.contract.empty_row_o or 0.0)
        right[name] = dataclasses.replace(right[name], strict=strict)
    o = lse = None
    if inputs.do is not None:
        if "lse" in outputs and subject.contract.reads_outputs is not False:
            unit = 1.0 if form.lse_base == "e" else math.log(2.0)
            o, stored, bad = finite_stored(outputs["o"], outputs["lse"], truth)
            lse = stored * unit
            for name, mask in ({} if bad is None else rows_reach(bad, problem)).items():
                free[name] = free[name] | mask if name in free else mask
            right |= backward_asked(truth, problem, o, lse / unit)
            if subject.contract.reads_outputs is None:
                right |= _also_end_to_end(right, truth)
            for name, pair in truth.given(o, lse / unit)[1].items():
                right[name] = dataclasses.replace(right[name], strict=of_bound(*pair))
        else:
            right |= backward_asked(truth, problem, None, None)
    return Scene(
        problem=problem,
        inputs=inputs,
        truth=truth,
        form=form,
        contract=subject.contract,
        outputs=outputs,
        free=free,
        at=positions(case),
        execution=execution,
        o=o,
        lse=lse,
        right={name: expected for name, expected in right.items() if name in outputs},
    )


def _also_end_to_end(right: Expectations, truth: Truth) -> Expectations:
    """Gradients of a backward that may not read O and LSE: an element that is right end to end is right, as `check_accuracy` has it."""
    whole = {name: of_bound(*pair) for name, pair in truth.widest().items() if name in right}
    return {name: dataclasses.replace(right[name], other=(x.value, x.total)) for name, x in whole.items()}
