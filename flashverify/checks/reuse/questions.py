"""What the check `reuse` asks.

The base pass of a case is its first call. Every question ends with the same problem once more, whose outputs must be those of the
base, bit for bit; without a promise of that, within their bounds. In between another problem lies at the same addresses, or a larger
one was asked, and that one is judged by its own truth: a subject that answers it with what it kept of the first fails there. After
other values the case is asked in memory of its own while they still lie in the first: a subject that kept an address reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import first_failure
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.bitwise import first_difference
from flashverify.checks.passes.by_itself import told_by_itself
from flashverify.checks.passes.execution import execute, sparing
from flashverify.checks.reuse.asking import Other, between, blamed_on, failure, same
from flashverify.checks.reuse.cuda import at_once, captured, on_another_stream
from flashverify.checks.reuse.held import held
from flashverify.checks.reuse.neighbours import other_settings, other_storage
from flashverify.checks.reuse.problems import larger, other_values, shorter, with_lengths_of, with_other_values
from flashverify.checks.reuse.saved_tensors import Saved
from flashverify.judge.verdict import Status, Verdict
from flashverify.outputs import BACKWARD
from flashverify.subjects.blame import subject_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.checks.reuse.neighbours import Neighbour
    from flashverify.subjects.interface import Subject

__all__ = [
    "backward",
    "calls",
    "graph",
    "larger_between",
    "lengths",
    "settings",
    "storage",
    "stream",
    "together",
    "values",
]


def calls(first: BasePass) -> Iterator[Verdict]:
    """The same problem again and again: call `first.calls` is the first one."""
    subject, base = first.subject, first.execution
    for _ in range(first.calls - 2):
        execute(subject, base.problem)
    yield from same(subject, base, execute(subject, base.problem, pattern=1), "calls", f"call {first.calls}")


def values(first: BasePass) -> Iterator[Verdict] | None:
    """Other values at the same addresses, then the case elsewhere while they lie there."""
    problem = first.execution.problem
    if not sum(tensor.numel() for tensor in problem.tensors()):
        return None
    other = Other("other values", other_values(problem), with_other_values(first.case))
    return between(first, "values", [other], elsewhere=True)


def lengths(first: BasePass) -> Iterator[Verdict] | None:
    """Shorter lengths at the same addresses."""
    problem = first.execution.problem
    other = shorter(first.subject, problem)
    if other is None:
        return None
    return between(first, "lengths", [Other("other lengths", with_lengths_of(problem, other), other.case)])


def settings(first: BasePass) -> Iterator[Verdict] | None:
    """Another scale, and another mask or modifier, over the same tensors."""
    return _neighbours(first, "settings", other_settings(first.subject, first.case))


def storage(first: BasePass) -> Iterator[Verdict] | None:
    """Other strides, and another dtype, at the same addresses."""
    return _neighbours(first, "storage", other_storage(first.subject, first.case))


def _neighbours(first: BasePass, name: str, found: list[Neighbour]) -> Iterator[Verdict] | None:
    device = first.subject.device()
    others = (Other(what, materialize(case, device)[0], case, told=False) for what, case in found)
    return between(first, name, others) if found else None


def larger_between(first: BasePass) -> Iterator[Verdict] | None:
    """A larger problem between two calls."""
    case = larger(first.subject, first.case)
    return None if case is None else _after_larger(first, case)


def _after_larger(first: BasePass, case: Case) -> Iterator[Verdict]:
    subject, base = first.subject, first.execution
    problem, _ = materialize(case, subject.device())
    failing = first_failure(subject, execute(subject, problem))
    blamed = blamed_on(subject, base, failing, "larger", f"a larger problem asked after the case ({case})")
    yield from told_by_itself(subject, base.problem.case, list(blamed), (case,))
    again = execute(subject, base.problem, pattern=1, known=first.known)
    yield from same(subject, base, again, "larger", "a call after a larger problem")


def backward(first: BasePass) -> Iterator[Verdict] | None:
    """A second backward from one forward."""
    return _backward_twice(first) if first.case.grad.backward else None


def _backward_twice(first: BasePass) -> Iterator[Verdict]:
    """The backward twice from one forward, and what the forward saved before and after."""
    subject, problem, contract = first.subject, first.execution.problem, first.subject.contract
    with sparing(problem, first.known), subject_code():
        forward = subject.forward(problem)
    saved = Saved(forward)
    found = []
    for number in (1, 2):
        try:
            with sparing(problem, first.known), subject_code():
                gradients = subject.backward(problem, forward)
        except RuntimeError as error:
            if number == 2 and "second time" in str(error):
                yield failure("backward", "", (), "its graph is freed by the first backward", Status.PASS)
                return
            raise
        tensors = {name: getattr(gradients, name) for name in BACKWARD}
        found.append({name: x.detach().clone() for name, x in tensors.items() if x is not None})
    changed = saved.changed()
    if changed:
        yield failure("saved-state", changed, (), f"the backward changed what the forward saved: {changed}")
    if not contract.deterministic:
        return
    undefined = undefined_elements(problem, contract)
    for name, once in found[0].items():
        difference = first_difference(once, found[1][name], undefined.get(name))
        if difference is not None:
            index, text = difference
            yield failure("backward", name, index, f"{name}{list(index)} of a second backward from one forward: {text}")


def stream(first: BasePass) -> Iterator[Verdict] | None:
    """A call on another CUDA stream."""
    subject, base = first.subject, first.execution
    if not base.problem.q.is_cuda:
        return None
    return same(subject, base, on_another_stream(subject, base.problem), "stream", "a call on another stream")


def together(first: BasePass) -> Iterator[Verdict] | None:
    """The case and one with other values on two streams at once."""
    subject, base = first.subject, first.execution
    if not base.problem.q.is_cuda:
        return None
    return _together(subject, base)


def _together(subject: Subject, base: Execution) -> Iterator[Verdict]:
    other = execute(subject, materialize(with_other_values(base.problem.case), subject.device())[0])
    for execution, again in zip((base, other), at_once(subject, base.problem, other.problem), strict=True):
        yield from same(subject, execution, again, "together", "a call beside one on another stream")


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
        yield failure("graph", "", (), text, Status.FAIL if promised else Status.PASS)
        return
    yield from same(subject, base, graph.replay(problem), "graph", "the replay of a graph")
    other = other_values(problem)
    less = shorter(subject, problem)
    with held(problem, other if less is None else with_lengths_of(other, less)) as asked:
        eager = execute(subject, asked)
        found = list(same(subject, eager, graph.replay(asked), "graph", "the replay of a graph over other inputs"))
    yield from found
    torch.cuda.synchronize(problem.q.device)
