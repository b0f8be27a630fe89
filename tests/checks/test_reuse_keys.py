"""Reuse: a subject for each key under which something may be kept between calls; the question that names it finds it."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.campaign.worker.search import draw
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, judge_case
from flashverify.checks.reuse.held import held, moved
from flashverify.checks.reuse.problems import other_values, with_other_values
from tests.checks.naive import SUPPORTS, attention, make
from tests.checks.stale import STALE, keeps_nothing, stale

CASE = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=7 dtype=fp32 seed=1 backward=no")
LENGTHS = dataclasses.replace(CASE, mask=dataclasses.replace(CASE.mask, key_lengths=(6,)))
ASKED = ("values", "lengths", "settings", "storage")


def told(subject, case, *questions):
    result = judge_case(subject, case, Plan(checks=("accuracy", "reuse"), questions={"reuse": questions or ASKED}))
    return {(v.check, v.error) for v in result.failures}, " ".join(v.message for v in result.failures)


@pytest.mark.parametrize("case", [CASE, LENGTHS], ids=["plain", "lengths"])
def test_a_subject_that_keeps_nothing_is_asked_everything_and_passes(case):
    assert told(keeps_nothing(), case) == (set(), "")


@pytest.mark.parametrize("name", STALE)
def test_what_is_kept_is_found_by_the_question_that_names_it(name):
    case = LENGTHS if name.startswith("lengths") else CASE
    if name.startswith("dtype"):
        case = dataclasses.replace(case, dtype="fp16")
    subject, question = stale(name)
    found, message = told(subject, case, question)

    assert found == {("reuse", question)}
    if "first call" not in message:
        addressed = any(key in name for key in ("address", "object"))
        assert ("goes by addresses" in message) is addressed, message
    assert "with equal shapes and" in message


@pytest.mark.parametrize("wrong", ["scale", "raises"])
def test_a_neighbour_that_is_wrong_by_itself_says_nothing_about_state(wrong):
    """The search draws it, and tells it under its own text."""

    def function(p):
        other = p.scale != CASE.softmax_scale
        if other and wrong == "raises":
            raise ValueError("no other scale")
        return attention(p, extra=0.5 * other)

    assert told(make(function, supports=dataclasses.replace(SUPPORTS, backward=False)), CASE) == (set(), "")


def test_other_values_are_those_of_the_case_that_is_judged_by_itself():
    """Else a subject that is wrong on the one and right on the other would be said to keep something."""
    case = parse_case("fv1 heads_q=3 alibi=wild sink=yes bias=head seed=5 edits=q:0,0,0,0:7;slopes:1,0,0,0:-1000")
    asked, alone = other_values(materialize(case)[0]), materialize(with_other_values(case))[0]

    assert len(asked.tensors()) == len(alone.tensors()) > 4
    assert all(torch.equal(one, other) for one, other in zip(asked.tensors(), alone.tensors(), strict=True))


def test_another_problem_in_the_memory_of_a_case_changes_no_address_object_or_version():
    problem, _ = materialize(CASE)
    other, _ = materialize(dataclasses.replace(CASE, values=dataclasses.replace(CASE.values, seed=7)))
    before, known = problem.q.clone(), (id(problem.q), problem.q.data_ptr(), problem.q._version)
    with held(problem, other) as asked:
        assert (id(asked.q), asked.q.data_ptr(), asked.q._version) == known
        assert asked.q.equal(other.q)
        assert not asked.q.equal(before)

    assert problem.q.equal(before)
    assert problem.q._version == known[2]


@pytest.mark.parametrize("changes", [{"dtype": "fp16"}, {"storage": dataclasses.replace(CASE.storage, layout="bshd")}])
def test_other_strides_and_dtypes_begin_at_the_same_address(changes):
    problem, _ = materialize(CASE)
    other, _ = materialize(dataclasses.replace(CASE, **changes))
    before = problem.k.clone()
    with held(problem, other) as asked:
        assert asked.k.data_ptr() == problem.k.data_ptr()
        assert (asked.k.dtype, asked.k.stride()) == (other.k.dtype, other.k.stride())
        assert asked.k.equal(other.k)

    assert problem.k.equal(before)


def test_the_same_objects_lie_in_other_memory():
    problem, _ = materialize(CASE)
    fresh, _ = materialize(CASE)
    address = problem.v.data_ptr()
    with moved(problem, fresh) as asked:
        assert asked.v is problem.v
        assert asked.v.data_ptr() == fresh.v.data_ptr() != address

    assert problem.v.data_ptr() == address


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name",
    [
        "scale, shapes",
        pytest.param("result, object, address, version, strides and dtype", marks=pytest.mark.thorough),
    ],
)
def test_a_search_of_fifty_cases_names_what_is_kept(name):
    subject, question = stale(name)
    cases = draw(toolkit.strategy(subject, "cpu"), 50, 1)
    found = {(v.check, v.error) for case in cases for v in judge_case(subject, case, Plan.fuzz(case)).failures}

    assert ("reuse", question) in found
