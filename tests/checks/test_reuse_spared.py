"""Launches that need not run in the check `reuse`: what a subject keeps reaches its kernels as something that they load or get."""

import dataclasses
import itertools

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.interpreter.repeating import Repeating
from tests.checks.padded_kernels import attend

pytestmark = pytest.mark.usefixtures("session")

CASE = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 klen=4,9 seed=3")
KEPT = {"v": "values", "k": "values", "key_lengths": "lengths"}
"""What a subject may keep of its second call, and the question that finds it."""


class Kept:
    """A subject that keeps something between a forward and its backwards."""

    def __init__(self, inner):
        self.inner, self.kept = inner, None

    def __getattr__(self, name):
        return getattr(self.inner, name)


class OneLse(Kept):
    """Every backward takes the LSE of the last forward."""

    def forward(self, problem):
        found = self.inner.forward(problem)
        self.kept = found.lse
        return found

    def backward(self, problem, forward):
        return self.inner.backward(problem, dataclasses.replace(forward, lse=self.kept.clone()))


class FirstDo(Kept):
    """Every backward of a forward takes the dO of the first."""

    def forward(self, problem):
        self.kept = None
        return self.inner.forward(problem)

    def backward(self, problem, forward):
        self.kept = problem.do if self.kept is None else self.kept
        return self.inner.backward(dataclasses.replace(problem, do=self.kept), forward)


class SpentLse(Kept):
    """A backward leaves another LSE than its forward to the next one."""

    def backward(self, problem, forward):
        found = self.inner.backward(problem, dataclasses.replace(forward, lse=forward.lse + (self.kept or 0)))
        self.kept = 1.0
        return found

    def forward(self, problem):
        self.kept = None
        return self.inner.forward(problem)


LATE = {"forward-between": OneLse, "another-do": FirstDo, "backward": SpentLse}


def keeping(name):
    """A subject that is right in its first two calls, and takes a part of the second one's problem in each later call."""
    inner, numbers, kept = attend(), itertools.count(), {}

    def function(p):
        given = getattr(p, name)
        if next(numbers) == 1:
            kept[name] = given.clone()
        return inner.function(dataclasses.replace(p, **kept))

    return dataclasses.replace(inner, function=function)


def found(subject, question):
    result = judge_case(subject, CASE, Plan(checks=("accuracy", "reuse"), questions={"reuse": (question,)}))
    return {(v.check, v.error) for v in result.failures}


@pytest.mark.parametrize("question", ["values", "lengths", "settings", "larger"])
def test_the_case_once_more_loads_what_it_loaded(spared, question):
    assert found(attend(), question) == set()
    assert spared


@pytest.mark.parametrize(("question", "launches"), [("backward", 3), ("forward-between", 2), ("another-do", 3)])
def test_the_case_with_a_late_backward_loads_what_it_loaded(spared, question, launches):
    assert found(attend(), question) == set()
    assert len(spared) == launches


def test_a_later_call_runs_every_launch(spared):
    assert found(attend(), "calls") == set()
    assert not spared


@pytest.mark.parametrize("question", LATE)
def test_what_is_kept_between_forward_and_backward_is_found(question):
    assert found(LATE[question](attend()), question) == {("reuse", question)}


@pytest.mark.parametrize(("name", "question"), KEPT.items())
def test_what_is_kept_of_a_call_is_found_in_the_case_once_more(name, question):
    assert found(keeping(name), question) == {("reuse", question)}


def test_a_sparing_of_every_launch_would_hide_it(monkeypatch):
    left, finish = {}, Repeating.on_finish

    def keep(self, launch):
        if self.watched.kept is not None:
            left[launch.name] = [x.tensor.clone() for x in self.tensors]
        finish(self, launch)

    def spare(self, _function, launch, _meanings):
        if self.watched.known is None:
            return False
        for argument, held in zip(self.tensors, left[launch.name], strict=True):
            if not self._state(argument).is_input:
                argument.tensor.copy_(held)
        return True

    monkeypatch.setattr(Repeating, "on_finish", keep)
    monkeypatch.setattr(Repeating, "repeated", spare)

    assert found(keeping("v"), "values") == set()
