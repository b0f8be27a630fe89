"""How a question of `reuse` is put: another problem at the same addresses, then the case once more, compared with its first call."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import first_failure, shape_failures
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.bitwise import first_differences
from flashverify.checks.passes.by_itself import told_by_itself, wrong_by_itself
from flashverify.checks.passes.execution import execute
from flashverify.checks.reuse.held import held, moved
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.subjects.interface import Subject

__all__ = ["Other", "between", "blamed_on", "failure", "same"]


@dataclass(frozen=True, slots=True)
class Other:
    """A problem that comes between two calls.

    Attributes:
        what: it differs in from the case, in words.
        problem: of equal shapes; its memory is its own.
        case: of a problem that holds the same.
        told: whether its failures are told where it is wrong by itself. Those of a case that nobody asked for say nothing about state.
    """

    what: str
    problem: Problem
    case: Case
    told: bool = True


def between(first: BasePass, name: str, others: Iterable[Other], *, elsewhere: bool = False) -> Iterator[Verdict]:
    """The case, then the others at the same addresses, up to the first that fails, then the case again.

    The subject is called each time. Of the case again, an interpreted launch that loads what it loaded in the base pass is not run.

    Args:
        first: the base pass.
        name: of the question.
        others: at least one.
        elsewhere: the case is asked again in memory of its own, while the last of the others still lies in the first.
    """
    subject, base, said = first.subject, first.execution, []
    again: list[Execution] = []
    for other in others:
        said.append(other.what)
        with held(base.problem, other.problem) as asked:
            try:
                execution = execute(subject, asked, memory=False)
            except Exception:
                # Kernels raise exceptions of any type. One is state only where the other problem does not raise alone too, in memory of its own.
                if other.told or not _raises(subject, other.case):
                    raise
                continue
            failing = next(iter(shape_failures(execution)), None) or first_failure(subject, execution)
            if elsewhere and failing is None:
                again = list(_elsewhere(first))
        verdicts = [] if failing is None else list(_answered(first, name, other, failing))
        yield from verdicts
        if verdicts:
            break
    what = f"a call after one with equal shapes and {' and one with '.join(said)}"
    for each in again or [execute(subject, base.problem, pattern=1, known=first.known, memory=False)]:
        verdicts = list(same(subject, base, each, name, what))
        yield from verdicts
        if verdicts:
            return


def _answered(first: BasePass, name: str, other: Other, failing: Verdict) -> Iterator[Verdict]:
    """The failure of another problem, with the key under which the answer of the case was kept; that of `accuracy` where it is wrong by itself."""
    subject = first.subject
    earlier = f"the answer depends on an earlier call with equal shapes and {other.what}"
    for verdict in told_by_itself(
        subject, first.case, list(blamed_on(subject, first.execution, failing, name, earlier)), (other.case,)
    ):
        if verdict.error == name:
            yield msgspec.structs.replace(verdict, message=verdict.message + _kept_by(subject, other.case))
        elif other.told:
            yield verdict


def _raises(subject: Subject, case: Case) -> bool:
    """Whether the subject raises an exception on a case in memory of its own."""
    try:
        execute(subject, materialize(case, subject.device())[0])
    except Exception:
        return True
    return False


def _elsewhere(first: BasePass) -> Iterator[Execution]:
    """The case in memory of its own: in new tensors, and in the same tensor objects."""
    subject, problem = first.subject, first.execution.problem
    fresh, _arena = materialize(problem.case, subject.device())
    yield dataclasses.replace(execute(subject, fresh, pattern=1, known=first.known, memory=False), problem=problem)
    with moved(problem, fresh) as asked:
        execution = execute(subject, asked, pattern=1, known=first.known, memory=False)
    yield dataclasses.replace(execution, problem=problem)


def _kept_by(subject: Subject, case: Case) -> str:
    """By which key an answer is kept, in words: whether the problem is right in memory of its own."""
    if wrong_by_itself(subject, case):
        return "; in memory of its own it is wrong too: what is kept goes by shapes or less, not by addresses"
    return "; in memory of its own it is right: what is kept goes by addresses, tensor objects or their versions"


def same(
    subject: Subject, base: Execution, again: Execution, name: str, what: str, like: str = "the first call"
) -> Iterator[Verdict]:
    """Failures where `again`, which is `what`, is not `base`, which is `like`, bit for bit; where that is not promised, where it is outside its bounds."""
    if not subject.contract.deterministic:
        if not _all_equal(base, again):
            yield from blamed_on(subject, base, first_failure(subject, again), name, what)
        return
    undefined = undefined_elements(base.problem, subject.contract)
    for output, mask in base.unwritten.items():  # the check `memory` reports these
        undefined[output] = undefined[output] | mask if output in undefined else mask
    pairs = [(expected, again.outputs[output], undefined.get(output)) for output, expected in base.outputs.items()]
    for output, found in zip(base.outputs, first_differences(pairs), strict=True):
        if found is not None:
            index, text = found
            yield failure(name, output, index, f"{output}{list(index)} of {what} is not that of {like}: {text}")


def _all_equal(base: Execution, again: Execution) -> bool:
    """Whether two passes over one problem returned the same, so that both are within their bounds or neither is."""
    ours, theirs = (
        {name: (tensor.shape, tensor.dtype) for name, tensor in each.outputs.items()} for each in (base, again)
    )
    pairs = [(tensor, again.outputs[name], None) for name, tensor in base.outputs.items()] if ours == theirs else []
    return ours == theirs and not any(first_differences(pairs))


def blamed_on(subject: Subject, base: Execution, failing: Verdict | None, name: str, what: str) -> Iterator[Verdict]:
    """A failure where another pass is outside its bounds and the base is not: a subject that is wrong by itself fails `accuracy`."""
    if failing is not None and first_failure(subject, base) is None:
        yield failure(name, failing.output, failing.index, f"{what} is wrong: {failing.message}")


def failure(error: str, output: str, index: tuple[int, ...], message: str, status: Status = Status.FAIL) -> Verdict:
    """A verdict of `reuse`."""
    return Verdict(check="reuse", status=status, output=output, error=error, index=index, message=message)
