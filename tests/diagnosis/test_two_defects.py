"""Two defects in different kernels are each named for the output that is asked about."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.attribution import attributed
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.each_output import apart
from flashverify.diagnosis.narrowing import Narrowed, kernel_alone
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.gradient_defects import CASE, at_end, planted_gradient, rows
from tests.fast_tier import fast_one_in

GROUPS = CASE + "heads_q=4 heads_kv=2 "
NOT_NORMALISED = {"output": lambda s, o, z, v, lse: o * (lse - z.amax(-1)).nan_to_num(0, 0, 0).exp().unsqueeze(-1)}
HALVED = at_end("dk", by=lambda x, s: x / 2)
PAIRS = [
    ("not-normalised", "o", CASE, NOT_NORMALISED | rows(delta=lambda s: 2 * s.delta)),
    ("delta-twice", "dq", CASE, NOT_NORMALISED | rows(delta=lambda s: 2 * s.delta)),
    ("gradient-twice", "dq", GROUPS, {"at_end": lambda s: (setattr(s, "dq", 2 * s.dq), setattr(s, "dv", s.dv / 2))}),
    ("gradient-halved", "dv", GROUPS, {"at_end": lambda s: (setattr(s, "dq", 3 * s.dq), setattr(s, "dv", s.dv / 2))}),
]


def verdict_of(subject, case, output):
    found = judge_case(subject, case, Plan.only("accuracy", case)).failures
    return next(v for v in found if v.output == output)


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "output", "text", "defects"), fast_one_in(1, (pytest.param(*x) for x in PAIRS), kept=2)
)
def test_one_of_two_defects_is_named(name, output, text, defects):
    subject, case = planted_gradient(defects), parse_case(text)
    found = diagnose(subject, case, verdict_of(subject, case, output), seconds=300)
    assert name in (found.name, *found.also), found
    assert found.evidence.endswith("other outputs are wrong in another way.")


def test_the_kernel_of_the_output_is_asked_about_and_the_others_count_as_right():
    subject, case = planted_gradient(NOT_NORMALISED | HALVED), parse_case(CASE)
    trials = Trials(subject, 60.0)
    scene = trials.scene(case)
    assert set(scene.failures) == {"o", "dk"}
    assert kernel_alone(trials, scene, "dk") == ("dk", "dv")
    assert kernel_alone(trials, scene, "dq") == ("o", "lse")
    alone = Narrowed(trials, ("dk", "dv"))
    assert set(alone.scene(case).failures) == {"dk"}
    assert set(trials.scene(case).failures) == {"o", "dk"}


def test_one_defect_needs_no_kernel_by_itself():
    subject, case = planted_gradient(HALVED), parse_case(CASE)
    trials = Trials(subject, 60.0)
    assert kernel_alone(trials, trials.scene(case), "dk") is None


SHIFTED = {"lse": lambda s, whole, total: -whole}
UNKNOWN = {"lse": lambda s, whole, total: whole + torch.sin(3 * whole)}
FORWARD = CASE + "backward=no "


@pytest.mark.parametrize(("output", "name", "other"), [("o", "not-normalised", "lse"), ("lse", "lse-sign", "o")])
def test_two_defects_of_one_kernel_are_named_for_the_output_that_each_makes_wrong(output, name, other):
    subject, case = planted_gradient(NOT_NORMALISED | SHIFTED), parse_case(FORWARD)
    verdict = verdict_of(subject, case, output)
    found = diagnose(subject, case, verdict, seconds=300)
    assert (found.name, found.beside) == (name, (other,))
    assert f"Beside it {other} is wrong in another way: " in found.sentence
    assert found.evidence.endswith("other outputs are wrong in another way.")
    assert attributed(subject, case, verdict, found, alone=True)
    assert attributed(subject, case, verdict_of(subject, case, other), found, alone=True) is False


@pytest.mark.parametrize(
    "defects",
    [{"scale": lambda s, problem: 1.0}, NOT_NORMALISED, NOT_NORMALISED | UNKNOWN],
    ids=["one defect of both outputs", "one of a single output", "an output without a name"],
)
def test_outputs_of_one_kernel_are_apart_only_where_each_has_a_name_of_its_own(defects):
    subject, case = planted_gradient(defects), parse_case(FORWARD)
    trials = Trials(subject, 60.0)
    scene = trials.scene(case)
    assert "o" in scene.failures
    assert apart(trials, scene, "o", 1.0) is None
    assert apart(trials, scene, "lse", 1.0) is None


def test_time_that_begins_anew_is_a_share_of_what_is_left_and_keeps_the_runs():
    now = [0.0]
    trials = Trials(planted_gradient(HALVED), 10.0, clock=lambda: now[0])
    scene = trials.scene(parse_case(CASE))
    now[0] = 6.0
    again = trials.anew(0.5)
    assert again.scenes == {scene.case: scene}
    now[0] = 7.9
    assert again.left()
    now[0] = 8.1
    assert not again.left()
    assert trials.left()
