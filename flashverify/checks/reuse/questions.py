"""What the check `reuse` asks.

The base pass of a case is its first call. Every question ends with the same problem once more, whose outputs must be those of the
base, bit for bit; without a promise of that, within their bounds. In between the same memory holds another problem, or a larger one was
asked, and that one is judged by its own truth: a subject that answers it with what it kept of the first fails there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import first_failure
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.bitwise import first_difference
from flashverify.checks.passes.by_itself import told_by_itself
from flashverify.checks.passes.execution import execute
from flashverify.checks.reuse.cuda import captured, on_another_stream
from flashverify.checks.reuse.problems import (
    larger,
    length_changes,
    overwritten,
    shorter,
    value_changes,
    with_other_values,
)
from flashverify.checks.reuse.saved_tensors import Saved
from flashverify.judge.verdict import Status, Verdict
from flashverify.outputs import BACKWARD
from flashverify.subjects.blame import subject_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.checks.reuse.problems import Changes
    from flashverify.subjects.interface import Subject

__all__ = ["backward", "calls", "graph", "larger_between", "lengths", "stream", "values"]


def calls(first: BasePass) -> Iterator[Verdict]:
    """The same problem again and again: call `first.calls` is the first one."""
    subject, base = first.subject, first.execution
    for _ in range(first.calls - 2):
        execute(subject, base.problem)
    yield from _same(subject, base, execute(subject, base.problem, pattern=1), "calls", f"call {first.calls}")


def values(first: BasePass) -> Iterator[Verdict] | None:
    """The same memory with other values."""
    subject, base = first.subject, first.execution
    if not sum(tensor.numel() for tensor in base.problem.tensors()):
        return None
    return _between(subject, base, base.problem, value_changes(base.problem), "values")


def lengths(first: BasePass) -> Iterator[Verdict] | None:
    """The same memory with shorter lengths."""
    subject, base = first.subject, first.execution
    other = shorter(subject, base.problem)
    return None if other is None else _between(subject, base, other, length_changes(base.problem, other), "lengths")


def larger_between(first: BasePass) -> Iterator[Verdict] | None:
    """A larger problem between two calls."""
    case = larger(first.subject, first.case)
    return None if case is None else _after_larger(first.subject, first.execution, case)


def _after_larger(subject: Subject, base: Execution, case: Case) -> Iterator[Verdict]:
    problem, _ = materialize(case, subject.device())
    failing = first_failure(subject, execute(subject, problem))
    blamed = _blamed(subject, base, failing, "larger", f"a larger problem asked after the case ({case})")
    yield from told_by_itself(subject, base.problem.case, list(blamed), (case,))
    yield from _same(
        subject, base, execute(subject, base.problem, pattern=1), "larger", "a call after a larger problem"
    )


def backward(first: BasePass) -> Iterator[Verdict] | None:
    """A second backward from one forward."""
    return _backward_twice(first.subject, first.execution) if first.case.grad.backward else None


def _backward_twice(subject: Subject, base: Execution) -> Iterator[Verdict]:
    """The backward twice from one forward, and what the forward saved before and after."""
    problem, contract = base.problem, subject.contract
    with subject_code():
        forward = subject.forward(problem)
    saved = Saved(forward)
    found = []
    for number in (1, 2):
        try:
            with subject_code():
                gradients = subject.backward(problem, forward)
        except RuntimeError as error:
            if number == 2 and "second time" in str(error):
                yield _verdict("backward", "", (), "its graph is freed by the first backward", Status.PASS)
                return
            raise
        tensors = {name: getattr(gradients, name) for name in BACKWARD}
        found.append({name: x.detach().clone() for name, x in tensors.items() if x is not None})
    changed = saved.changed()
    if changed:
        yield _verdict("saved-state", changed, (), f"the backward changed what the forward saved: {changed}")
    if not contract.deterministic:
        return
    undefined = undefined_elements(problem, contract)
    for name, first in found[0].items():
        difference = first_difference(first, found[1][name], undefined.get(name))
        if difference is not None:
            index, text = difference
            yield _verdict(
                "backward", name, index, f"{name}{list(index)} of a second backward from one forward: {text}"
            )


def stream(first: BasePass) -> Iterator[Verdict] | None:
    """A call on another CUDA stream."""
    subject, base = first.subject, first.execution
    if not base.problem.q.is_cuda:
        return None
    return _same(subject, base, on_another_stream(subject, base.problem), "stream", "a call on another stream")


def graph(first: BasePass) -> Iterator[Verdict] | None:
    """The replay of a CUDA graph."""
    subject, base = first.subject, first.execution
    if not base.problem.q.is_cuda or subject.contract.graphs is False:
        return None
    return _replayed(subject, base)


def _replayed(subject: Subject, base: Execution) -> Iterator[Verdict]:
    """A graph captured once, replayed after its inputs and lengths were overwritten in place and its outputs poisoned."""
    import torch

    problem = base.problem
    try:
        graph = captured(subject, problem)
    except RuntimeError as error:
        promised = subject.contract.graphs is True
        text = f"it cannot be captured in a CUDA graph: {(str(error).splitlines() or [''])[0][:200]}"
        yield _verdict("graph", "", (), text, Status.FAIL if promised else Status.PASS)
        return
    yield from _same(subject, base, graph.replay(problem), "graph", "the replay of a graph")
    other = shorter(subject, problem)
    changes = value_changes(problem) + ([] if other is None else length_changes(problem, other))
    with overwritten(changes):
        eager = execute(subject, other or problem)
        found = list(
            _same(subject, eager, graph.replay(other or problem), "graph", "the replay of a graph over other inputs")
        )
    yield from found
    torch.cuda.synchronize(problem.q.device)


def _between(subject: Subject, base: Execution, other: Problem, changes: Changes, name: str) -> Iterator[Verdict]:
    """The case, then `other` in the same memory, then the case again."""
    with overwritten(changes):
        failing = first_failure(subject, execute(subject, other))
    blamed = _blamed(subject, base, failing, name, f"the same memory with other {name}")
    alone = other.case if other is not base.problem else with_other_values(other.case)
    yield from told_by_itself(subject, base.problem.case, list(blamed), (alone,))
    yield from _same(
        subject, base, execute(subject, base.problem, pattern=1), name, f"a call after one with other {name}"
    )


def _same(subject: Subject, base: Execution, again: Execution, name: str, what: str) -> Iterator[Verdict]:
    """Failures where `again` is not `base` bit for bit; where that is not promised, where it is outside its bounds."""
    if not subject.contract.deterministic:
        yield from _blamed(subject, base, first_failure(subject, again), name, what)
        return
    undefined = undefined_elements(base.problem, subject.contract)
    for output, mask in base.unwritten.items():  # the check `memory` reports these
        undefined[output] = undefined[output] | mask if output in undefined else mask
    for output, expected in base.outputs.items():
        found = first_difference(expected, again.outputs[output], undefined.get(output))
        if found is not None:
            index, text = found
            yield _verdict(
                name, output, index, f"{output}{list(index)} of {what} is not that of the first call: {text}"
            )


def _blamed(subject: Subject, base: Execution, failing: Verdict | None, name: str, what: str) -> Iterator[Verdict]:
    """A failure where another pass is outside its bounds and the base is not: a subject that is wrong by itself fails `accuracy`."""
    if failing is not None and first_failure(subject, base) is None:
        yield _verdict(name, failing.output, failing.index, f"{what} is wrong: {failing.message}")


def _verdict(error: str, output: str, index: tuple[int, ...], message: str, status: Status = Status.FAIL) -> Verdict:
    return Verdict(check="reuse", status=status, output=output, error=error, index=index, message=message)
