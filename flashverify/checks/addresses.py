"""The check `addresses`: offsets beyond 2^31 elements, asked of small tensors whose strides are huge."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from flashverify.case.memory.far.guard import FarOutputs
from flashverify.case.memory.far.problem import far_problem
from flashverify.case.memory.far.strides import FAR_AXES
from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.enlarged import with_heads, with_sequences
from flashverify.checks.passes.execution import execute
from flashverify.checks.passes.far_values import far_values, wrong_values
from flashverify.checks.spec import CheckSpec, ErrorClass, Need, Question, Slot
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.memory.far.problem import Place
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.interpreter.memory import Place as Line
    from flashverify.interpreter.wraps import Loss, Wrap, Wraps
    from flashverify.subjects.interface import Subject

__all__ = ["SPEC", "check_addresses"]

_OWN = {"batch": 0, "head": 1, "row": 2}
"""The axis that is stretched of what the subject allocates, whose order of axes nobody knows."""
_ENLARGED = {
    "batch": with_sequences,
    "head": with_heads,
}
_LISTED = 3


def check_addresses(
    subject: Subject,
    base: Execution,
    questions: tuple[str, ...],
    undefined: dict[str, torch.Tensor],
    place: Place | None = None,
) -> Iterator[Verdict]:
    """Failing verdicts of the error classes `int32-overflow` and `far-values`; passing ones where the subject raises an exception.

    Each question is a pass over the same values in tensors that span nearly 2^32 elements, under a sanitizer that knows which
    elements are theirs. An access 2^32 elements before an element of its tensor is an offset that did not fit 32 bits. Other
    accesses outside a tensor mean that the kernel does not follow the strides that it is given, and such a pass says nothing.

    Args:
        subject: the kernel under test.
        base: the pass, made under a sanitizer.
        questions: of `FAR_AXES`. Under `batch`, `head` and `row` the first, second or third axis of what the subject allocates is
            stretched too, unless the subject raises an exception then, or takes a contiguous copy of it: a copy that there is only here.
        undefined: per output the elements that the contract leaves open.
        place: see `far_problem`. A pass that was not made under a sanitizer is judged by its values alone.
    """
    told: set[tuple[Line, str]] = set()
    for question in questions:
        try:
            problem = _problem(subject, base.problem, question, place)
        except OSError as error:
            yield _remark(question, f"this machine gives no memory that spans 2^31 elements: {error}")
            continue
        if problem is not None and base.watch is None:
            yield from far_values(subject, base, problem, undefined, stretched(question))
        elif problem is not None:
            yield from _asked(subject, base, question, problem, undefined, told)


def _problem(subject: Subject, problem: Problem, question: str, place: Place | None) -> Problem | None:
    """What a question is asked of: three sequences or heads where it is about these; None where it has nothing to stretch."""
    enlarge = _ENLARGED.get(question)
    larger = problem.case if enlarge is None else enlarge(subject, problem.case)
    if larger != problem.case and place is None:
        problem, _ = materialize(larger, subject.device())
    return far_problem(problem, question, place)


def _asked(
    subject: Subject,
    base: Execution,
    question: str,
    problem: Problem,
    undefined: dict[str, torch.Tensor],
    told: set[tuple[Line, str]],
) -> Iterator[Verdict]:
    from flashverify.interpreter.wraps import losses

    own = _OWN.get(question)
    tried = _tried(subject, problem, own)
    if own is not None and not tried.wraps.found and (tried.error is not None or tried.copied):
        own = None
        tried = _tried(subject, problem, own)
    execution, wraps, error = tried.execution, tried.wraps, tried.error
    found = {where: wrap for where, wrap in wraps.found.items() if where not in told}
    told |= set(found)
    if found:
        with losses() as lost:
            _tried(subject, problem, own)
        for wrap in list(found.values())[:_LISTED]:
            yield _overflow(_words(question, problem.case, base.problem.case), wrap, _cause(wrap, lost.values()))
    elif wraps.found:
        return
    elif error is not None:
        yield _remark(question, f"not examined, {type(error).__name__}: {error}".splitlines()[0])
    elif wraps.strays:
        yield _remark(question, "not examined, a kernel does not follow the strides that it is given")
    elif execution is not None and not wraps.own_strays and problem.case == base.problem.case:
        yield from wrong_values(subject, base, execution, undefined, stretched(question))


def _cause(wrap: Wrap, lost: Iterable[Loss]) -> Loss | None:
    """The arithmetic of the kernel whose lost result comes closest to the offset from below."""
    below = [loss for loss in lost if loss.kernel == wrap.kernel and loss.exact <= wrap.offset]
    return max(below, key=lambda loss: loss.exact, default=None)


class _Tried(NamedTuple):
    """A pass over a far problem, or the exception that ended it."""

    execution: Execution | None
    wraps: Wraps
    error: Exception | None
    copied: bool


def _tried(subject: Subject, problem: Problem, own: int | None) -> _Tried:
    from flashverify.interpreter.wraps import Wraps

    wraps, guarding = Wraps(), FarOutputs(own)
    try:
        execution = execute(subject, problem, guarding=guarding, wraps=wraps, memory=False)
    except Exception as error:
        return _Tried(None, wraps, error, guarding.copied)
    return _Tried(execution, wraps, None, guarding.copied)


def _words(question: str, asked: Case, given: Case) -> str:
    larger = (f"{name}={getattr(asked, name)}" for name in ("batch", "heads_q", "heads_kv"))
    return stretched(question) if asked == given else f"{stretched(question)} with {' '.join(larger)}"


def _overflow(words: str, wrap: Wrap, cause: Loss | None) -> Verdict:
    lost = "" if cause is None else f"; {cause}"
    return Verdict(
        check="addresses",
        status=Status.FAIL,
        output=wrap.argument,
        error="int32-overflow",
        index=wrap.index,
        message=f"{wrap}{lost}; {words}",
    )


def stretched(question: str) -> str:
    """What a question makes huge, in words."""
    return f"stretched: {'every stride' if question == 'all' else f'the stride of the {question} axis'}"


def _remark(question: str, text: str) -> Verdict:
    return Verdict(
        check="addresses", status=Status.PASS, error="int32-overflow", message=f"{stretched(question)}: {text}"
    )


def _stands(question: str, case: Case) -> bool:
    """Whether the case has such an axis."""
    if question == "page":
        return case.storage.page_size is not None
    return question != "batch" or case.mask.packed is None


def _applies(subject: Subject, _case: Case) -> bool:
    return subject.supports.far_strides


def _run(base: BasePass, questions: tuple[str, ...]) -> list[Verdict] | None:
    if base.execution.watch is None or not questions:
        return None
    return list(check_addresses(base.subject, base.execution, questions, base.undefined))


SPEC = CheckSpec(
    name="addresses",
    question="In the interpreter: is every element found where tensors span more than 2^31 elements, with strides whose products "
    "with an index do not fit 32 bits?",
    needs=(Need.INTERPRETER, Need.PASSES),
    questions=tuple(
        Question(name=name, slot=Slot.ADDRESSES, stands=functools.partial(_stands, name)) for name in FAR_AXES
    ),
    errors=(
        ErrorClass(
            "int32-overflow",
            "an offset into {output} overflows 32 bits",
            "an access lies 2^32 elements before an element of its tensor: an offset from 2^31 on was computed in 32 bits",
        ),
        ErrorClass(
            "far-values",
            "{output} is wrong where tensors span more than 2^31 elements",
            "an output is outside its bounds in tensors with huge strides alone",
        ),
    ),
    run=_run,
    applies=_applies,
    of_right_passes=True,
    always_shared=True,
    remark=lambda verdict: f"addresses: {verdict.message}",
)
