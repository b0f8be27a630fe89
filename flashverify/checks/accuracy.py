"""The checks `accuracy` and `nonfinite`: every element of every output within its bound, every non-finite value allowed.

The backward is judged twice: end to end, and given the subject's own stored O and LSE, which removes their error from the
bound and so sees a defect of the backward itself far more sharply. Where a form leaves open what the backward starts from, gradients
that are right under one reading of it are right. Where a form declares the order of its tiles, O and dV are
judged once more, strictly: against the weights as they must be rounded (docs/bounds.md, section 14). A subject that promises what huge
biases, slopes and sinks act as is held to it where no bound says anything (`saturation`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashverify.case.memory.host import on_cpu
from flashverify.checks.both_modes import END_TO_END, STRICT, compared_gradients
from flashverify.checks.left_open import pinned_elements, undefined_elements
from flashverify.checks.passes.comparing import compares
from flashverify.checks.passes.derived_problems import work
from flashverify.checks.passes.known import Known
from flashverify.judge.together import Question, answers_if_wrong, compare_outputs
from flashverify.judge.verdict import Status, Verdict
from flashverify.outputs import COMMON_GRADIENTS, OUTPUTS, expected_shapes, output
from flashverify.truth import Truth, inputs_of

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem
    from flashverify.checks.both_modes import Asked
    from flashverify.checks.passes.execution import Execution
    from flashverify.judge.compare import Comparison
    from flashverify.judge.verdict import Sampled
    from flashverify.numerics import Form, OutputBound
    from flashverify.subjects.interface import Contract, Subject
    from flashverify.truth import Clean

__all__ = [
    "Accuracy",
    "check_accuracy",
    "doubtful",
    "first_failure",
    "judged_form",
    "shape_failures",
    "tainted",
    "united",
]

_CPU_WORK = 1 << 20
"""Below so many multiply-adds of the scores a case of a GPU is judged on the CPU, where hundreds of small operations cost less."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The comparisons of a case, remarks that are no failures, and failures of elements beyond every bound.

    Attributes:
        promised: exempt elements of which something is asked all the same.
        sampled: which part was compared; None is all of it.
        known: what it was compared with, where that was all of it.
    """

    comparisons: tuple[Comparison, ...]
    warnings: tuple[str, ...]
    broken: tuple[Verdict, ...] = ()
    promised: int = 0
    sampled: Sampled | None = None
    known: Known | None = None

    def failures(self) -> list[Verdict]:
        """Every failing verdict of `accuracy` and `nonfinite`."""
        return [*(verdict for comparison in self.comparisons for verdict in comparison.verdicts), *self.broken]


def judged_form(subject: Subject, problem: Problem) -> Form:
    """The form that the bounds assume: the subject's, with what its contract says of the LSE, of empty rows and of what its backward reads."""
    from flashverify.numerics import from_outputs

    form, contract = subject.form(problem.case), subject.contract
    form = from_outputs(form) if contract.reads_outputs else form
    base, row = contract.lse_base or form.lse_base, "sink" if contract.empty_row_lse == "sink" else "none"
    same = (form.lse_base, form.empty_row_lse) == (base, row)
    return form if same else dataclasses.replace(form, lse_base=base, empty_row_lse=row)


def shape_failures(execution: Execution) -> list[Verdict]:
    """A failing verdict for every promised output that is missing, and for every one of the wrong shape or dtype."""
    import torch

    shapes, found = expected_shapes(execution.problem), []
    for name in execution.missing:
        message = f"{name} is promised and was not returned; expected {list(shapes[name])}"
        found.append(Verdict(check="accuracy", status=Status.FAIL, output=name, error="missing", message=message))
    for name, tensor in execution.outputs.items():
        dtype = execution.problem.q.dtype if output(name).dtype == "case" else torch.float32
        if tuple(tensor.shape) != shapes.get(name) or tensor.dtype != dtype:
            expected = (
                f"{list(shapes[name])} {dtype}"
                if name in shapes
                else "none: the case has nothing that it is the gradient of"
            )
            message = f"{name} is {list(tensor.shape)} {tensor.dtype}, expected {expected}"
            found.append(Verdict(check="accuracy", status=Status.FAIL, output=name, error="shape", message=message))
    return found


def check_accuracy(subject: Subject, execution: Execution, *, statistics: bool = True) -> Accuracy:
    """Compares every output with the oracle, end to end and, for the gradients, given the subject's own O and LSE.

    Args:
        subject: the kernel under test.
        execution: a pass of it.
        statistics: False asks for failures alone, which costs less: the comparisons of right outputs then have no statistics.
    """
    import torch

    form = judged_form(subject, execution.problem)
    with torch.inference_mode():  # of thousands of small operations each costs a tenth less
        return _compared(subject.contract, form, execution, statistics)


def _compared(contract: Contract, form: Form, execution: Execution, statistics: bool) -> Accuracy:
    import torch

    from flashverify.checks.saturation import check_saturation

    problem, outputs = execution.problem, execution.outputs
    if problem.q.is_cuda and work(problem.case) <= _CPU_WORK:
        given: tuple[Any, ...] = (problem, *outputs.values())
        problem, *moved = on_cpu(given)
        outputs = dict(zip(outputs, moved, strict=True))
    inputs, tidy = inputs_of(problem)
    truth, taint = Truth(inputs, problem.case.dtype, form, finite=True), tainted(tidy, form)
    undefined, pinned = undefined_elements(problem, contract), pinned_elements(truth, problem, contract)
    warnings = []

    def question(
        name: str, mode: str, value: torch.Tensor, bound: OutputBound, lost: torch.Tensor | None = None
    ) -> Question:
        mask, fixed = pinned.get(name, (None, 0.0))
        if mask is not None and name in ("delta", "dq"):  # of a row without keys whose dP overflows nothing is asked
            mask = mask & ~bound.exempt
        return Question(
            output=name,
            got=outputs[name],
            expected=value,
            bound=bound,
            mode=mode,
            taint=united(taint.get(name), lost),
            pinned=mask,
            pinned_value=fixed,
            undefined=undefined.get(name),
            exact=(lambda: truth.exact(name)) if mode == STRICT else None,
        )

    waiting: list[Asked] = [(n, END_TO_END, *pair, None) for n, pair in truth.forward().items() if n in outputs]
    waiting += [("o", STRICT, *pair, None) for pair in truth.strict().values() if "o" in outputs]
    comparisons: list[Comparison] = []

    def judge(asked: list[Asked]) -> list[Comparison]:
        """The comparisons of what is asked; with the first of these come those of the forward, which cost a GPU less so."""
        before, waiting[:] = list(waiting), []
        questions = [question(*each) for each in (*before, *asked)]
        found = compare_outputs(questions) if statistics else answers_if_wrong(questions)
        comparisons.extend(found[: len(before)])
        return found[len(before) :]

    if inputs.do is not None:
        first: tuple[list[Comparison], list[Comparison]] | None = None
        for reading in truth.readings:
            found = compared_gradients(
                reading, judge, outputs, problem, conditional=contract.reads_outputs is not False,
                implied=not statistics and contract.reads_outputs is True,
            )  # fmt: skip
            first = first or found
            if not any(comparison.verdicts for part in found for comparison in part):
                break
        else:
            assert first is not None
            found = first
        comparisons += found[0]
        doubt = doubtful(comparisons, found[1]) if contract.reads_outputs is None else ""
        if doubt:
            warnings.append(doubt)
        else:
            comparisons += found[1]
    judge([])
    broken: tuple[Verdict, ...] = ()
    promised = 0
    if contract.modifiers_saturate and not taint:
        held = check_saturation(outputs, truth, problem, undefined)
        comparisons, broken, promised = comparisons + held.comparisons, tuple(held.failures), held.elements
    if taint and all(bool(torch.isfinite(outputs[name]).all()) for name in ("o", *COMMON_GRADIENTS) if name in outputs):
        warnings.append("a non-finite input left every output finite")
    return Accuracy(tuple(comparisons), tuple(warnings), broken, promised, known=Known(truth, tidy, outputs))


def doubtful(end_to_end: list[Comparison], given: list[Comparison]) -> str:
    """Why gradients that are wrong given O and LSE are no failure of a subject that may not read them; empty where they are right or wrong at all."""
    wrong = sorted({c.stats.output for c in given if c.verdicts}, key=OUTPUTS.index)
    if not wrong or any(c.verdicts for c in end_to_end):
        return ""
    return (
        f"{', '.join(wrong)}: right end to end, wrong given the returned O and LSE; "
        "a failure only of a subject with Contract(reads_outputs=True)"
    )


def first_failure(subject: Subject, execution: Execution) -> Verdict | None:
    """The first failing verdict of `accuracy` and `nonfinite` about a pass; None where every element is within its bound, and in a rehearsal."""
    return None if not compares() else next(iter(check_accuracy(subject, execution, statistics=False).failures()), None)


def tainted(tidy: Clean, form: Form) -> dict[str, torch.Tensor]:
    """Per output what a non-finite input may have reached: a delta that holds dLSE, what dLSE reaches."""
    found = dict(tidy.taint)
    if found and form.stored_delta == "minus_dlse":
        found["delta"] = found["dq"].squeeze(-1)
    return found


def united(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    """The elements of either mask; None where there is neither."""
    return b if a is None else a if b is None else a | b
