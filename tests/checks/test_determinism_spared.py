"""Launches that need not run in the check `determinism`: what makes bits differ from pass to pass has its launch run, and is found."""

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.interpreter.repeating import Repeating
from tests.checks.ordered_kernels import DEFECTS, stepped

CASE = parse_case(
    "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 backward=no klen=4,9 seed=3"
)

pytestmark = pytest.mark.usefixtures("session")
SPARED = ("repeat", "program-order")


def found(subject, question):
    plan = Plan(checks=("determinism",), questions={"determinism": (question,)})
    return {(v.check, v.error) for v in judge_case(subject, CASE, plan).failures}


@pytest.mark.parametrize("question", SPARED)
def test_a_kernel_whose_programs_do_not_meet_runs_in_the_base_pass_alone(spared, session, question):
    begun = session.attempts

    assert found(stepped(), question) == set()
    assert len(spared) == 2
    assert session.attempts == begun + 2


@pytest.mark.parametrize("question", ["solo-sequence", "solo-head", "permuted"])
def test_passes_over_parts_of_the_problem_run_every_launch(spared, question):
    assert found(stepped(), question) == set()
    assert not spared


@pytest.mark.parametrize(("wrong", "told"), DEFECTS.items())
def test_what_differs_from_pass_to_pass_is_found(wrong, told):
    question, error = told

    assert found(stepped(wrong), question) == {("determinism", error)}


@pytest.mark.parametrize(("wrong", "told"), DEFECTS.items())
def test_a_sparing_of_every_launch_would_hide_it(wrong, told, monkeypatch):
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

    assert found(stepped(wrong), told[0]) == set()
