"""Launches that need not run in the check `relations`: a forward that loads what it loaded in the base pass, before another dO."""

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from tests.checks.padded_kernels import attend

pytestmark = pytest.mark.usefixtures("session")

CASE = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 klen=4,9 seed=3")


def found(subject, relation):
    plan = Plan(checks=("accuracy", "relations"), questions={"relations": (relation,)})
    return {(v.check, v.error) for v in judge_case(subject, CASE, plan).failures}


class KeepsGradients:
    """The first gradients of a q are those of every later call with it."""

    def __init__(self, inner):
        self.inner, self.kept = inner, None

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def backward(self, problem, forward):
        self.kept = self.kept or self.inner.backward(problem, forward)
        return self.kept


@pytest.mark.parametrize(("relation", "forwards"), [("double-do", 1), ("linear-do", 2)])
def test_a_forward_before_another_do_need_not_run(spared, relation, forwards):
    assert found(attend(), relation) == set()
    assert len(spared) == forwards


@pytest.mark.parametrize("relation", ["double-v", "key-permutation", "lse-shift"])
def test_other_values_have_every_launch_run(spared, relation):
    assert found(attend(), relation) == set()
    assert not spared


@pytest.mark.parametrize("relation", ["double-do", "linear-do"])
def test_gradients_that_are_kept_are_found(relation):
    assert found(KeepsGradients(attend()), relation) == {("relations", relation)}
