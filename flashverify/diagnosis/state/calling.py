"""Two problems put to a subject one after the other, in the ways in which kernels take one for the other."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import execute
from flashverify.checks.reuse.cuda import captured
from flashverify.checks.reuse.held import held, moved
from flashverify.diagnosis.observe import seen
from flashverify.outputs import BACKWARD
from flashverify.subjects.blame import subject_code

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.execution import Execution
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.state.pairs import Pair
    from flashverify.subjects.interface import Subject

__all__ = ["After", "Called", "Way", "after", "called", "in_reverse", "repeated", "returned"]


class _RaisedError(Exception):
    """The subject raised an exception."""


class Way(Enum):
    """Where the later problem lies."""

    HELD = "at the addresses of the first one"
    APART = "in memory of its own"
    ELSEWHERE = "in new memory, while the other one lies in the old"
    MOVED = "in new memory of the same tensor objects, while the other one lies in the old"
    REPLAYED = "in the replay of a graph that was captured over the first one"
    BACKWARD = "in a second backward from one forward"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Called:
    """What two calls returned.

    Attributes:
        pair: the two cases; under `ELSEWHERE` and `MOVED` the one that is judged is the earlier one, called once more.
        way: where the later problem lay.
        earlier: the call whose things may be kept; it was right.
        later: the one that is held against them.
        strided: tensors of the later call as the strides of the earlier one read its memory.
    """

    pair: Pair
    way: Way
    earlier: Scene
    later: Scene
    strided: dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class After:
    """A call after another one, and without it.

    Attributes:
        called: both, the other one called twice before.
        before: the same call before the other one was made.
        again: the same call once more, right behind.
    """

    called: Called
    before: Scene
    again: Scene


def after(subject: Subject, pair: Pair) -> After | None:
    """The later problem, the earlier one twice, the later one twice; each in memory of its own.

    None where the second call of the earlier one is wrong, where nothing can be compared, or where the subject raises an exception.
    """
    device = subject.device()
    first, second = (materialize(case, device)[0] for case in (pair.earlier, pair.later))
    try:
        before = seen(subject, second, _run(subject, second, second, 0)[0])
        _run(subject, first, first, 0)
        earlier = seen(subject, first, _run(subject, first, first, 0)[0])
        if before is None or earlier is None or earlier.failures:
            return None
        late, strided = _run(subject, second, second, 0, first)
        again = seen(subject, second, _run(subject, second, second, 0)[0], like=before)
    except _RaisedError:
        return None
    found = _result(pair, Way.APART, earlier, seen(subject, second, late, like=before), strided)
    return None if found is None or again is None else After(called=found, before=before, again=again)


def repeated(subject: Subject, case: Case, calls: int) -> list[Scene]:
    """Calls of one problem one after the other; none where the subject raises an exception or nothing can be compared."""
    problem, _ = materialize(case, subject.device())
    found: list[Scene] = []
    try:
        for _ in range(calls):
            execution, _ = _run(subject, problem, problem, 0)
            scene = seen(subject, problem, execution, like=found[0] if found else None)
            if scene is None:
                return []
            found.append(scene)
    except _RaisedError:
        return []
    return found


def returned(subject: Subject, problem: Problem) -> dict[str, Tensor]:
    """What one call returns, which is held against nothing; empty where the subject raises an exception."""
    try:
        return _run(subject, problem, problem, 0)[0].outputs
    except _RaisedError:
        return {}


def called(subject: Subject, pair: Pair, way: Way) -> Called | None:
    """Both calls; None where the earlier one is wrong already, where nothing can be compared, or where the subject raises an exception."""
    try:
        return _called(subject, pair, way)
    except _RaisedError:  # a defect may raise on other cases; those say nothing
        return None


def in_reverse(subject: Subject, pair: Pair) -> tuple[Scene | None, Called | None]:
    """The later problem called first, in memory of its own: what is wrong in it then is no work of the earlier one.

    Returns:
        That call, None where it cannot be compared. Where it is wrong and the earlier problem, called after it, is right, also both.
    """
    device = subject.device()
    first, second = (materialize(case, device)[0] for case in (pair.earlier, pair.later))
    after = None
    try:
        late, strided = _run(subject, second, second, 0, first)
        after = seen(subject, second, late)
        if after is None or not after.failures:
            return after, None
        before = seen(subject, first, _run(subject, first, first, 1)[0])
    except _RaisedError:
        return after, None
    both = None if before is None or before.failures else _result(pair, Way.APART, before, after, strided)
    return after, both


def _called(subject: Subject, pair: Pair, way: Way) -> Called | None:
    device = subject.device()
    first, second = (materialize(case, device)[0] for case in (pair.earlier, pair.later))
    early, _ = _run(subject, first, first, 0)
    before = seen(subject, first, early)
    if before is None or before.failures:
        return None
    if way is Way.BACKWARD:
        return _result(pair, way, before, seen(subject, first, _twice(subject, early)), {})
    if way is Way.APART:
        late, strided = _run(subject, second, second, 1, first)
        return _result(pair, way, before, seen(subject, second, late), strided)
    graph = captured(subject, first) if way is Way.REPLAYED else None
    with held(first, second) as asked:
        if graph is not None:
            late = _copied(graph.replay(asked), second)
            return _result(pair, way, before, seen(subject, second, late), {})
        late, strided = _run(subject, asked, second, 1, first)
        if way is Way.HELD:
            return _result(pair, way, before, seen(subject, second, late), strided)
        again, _ = materialize(pair.earlier, device)
        if way is Way.ELSEWHERE:
            back, strided = _run(subject, again, again, 0)
        else:
            copy, _ = materialize(pair.earlier, device)
            with moved(first, copy) as same:
                back, strided = _run(subject, same, again, 0)
    between = seen(subject, second, late)
    if between is None or between.failures:
        return None
    return _result(pair, way, between, seen(subject, again, back), strided)


def _result(pair: Pair, way: Way, earlier: Scene, later: Scene | None, strided: dict[str, Tensor]) -> Called | None:
    return None if later is None else Called(pair=pair, way=way, earlier=earlier, later=later, strided=strided)


def _run(
    subject: Subject, asked: Problem, own: Problem, pattern: int, earlier: Problem | None = None
) -> tuple[Execution, dict[str, Tensor]]:
    """A run, its outputs copied before a later one may write there; and the tensors as the strides of `earlier` read them now."""
    strided = {} if earlier is None else _read_as(asked, earlier)
    try:
        execution = execute(subject, asked, pattern=pattern)
    except Exception as error:  # kernels raise exceptions of any type
        raise _RaisedError from error
    return _copied(execution, own), strided


def _copied(execution: Execution, own: Problem) -> Execution:
    outputs = {name: tensor.clone() for name, tensor in execution.outputs.items()}
    return dataclasses.replace(execution, problem=own, outputs=outputs)


def _twice(subject: Subject, first: Execution) -> Execution:
    """The outputs of `first` with the gradients of the second backward from one forward."""
    problem = first.problem
    try:
        with subject_code():
            forward = subject.forward(problem)
            subject.backward(problem, forward)
            gradients = subject.backward(problem, forward)
    except Exception as error:
        raise _RaisedError from error
    found = {name: x.detach().clone() for name in BACKWARD if (x := getattr(gradients, name)) is not None}
    return dataclasses.replace(first, outputs={**first.outputs, **found})


def _read_as(asked: Problem, earlier: Problem) -> dict[str, Tensor]:
    found = {}
    for name in ("q", "k", "v", "do", "bias"):
        tensor, other = getattr(asked, name), getattr(earlier, name)
        if tensor is None or other is None or tensor.shape != other.shape or tensor.stride() == other.stride():
            continue
        last = sum((size - 1) * stride for size, stride in zip(other.shape, other.stride(), strict=True))
        room = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
        if tensor.numel() and last < room:
            found[name] = tensor.as_strided(other.shape, other.stride()).clone()
    return found
