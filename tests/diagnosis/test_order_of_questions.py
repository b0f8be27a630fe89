"""What a diagnosis asks first: the time is short, and each question that is asked in vain takes some of it."""

import time

import pytest
import torch

import flashverify.diagnosis.diagnose as diagnosing
import flashverify.diagnosis.precision.words as wording
from flashverify.campaign.toolkit import bundled
from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.precision import precision_words
from flashverify.diagnosis.readings.elsewhere.rules import rules
from flashverify.diagnosis.readings.elsewhere.values import values_elsewhere
from flashverify.diagnosis.starting import and_the_first
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain
from tests.diagnosis.test_diagnosis import FORWARD, planted
from tests.diagnosis.test_elsewhere import moved

LARGER = FORWARD.replace("seq_k=7", "seq_k=70")


def unscaled():
    return planted(scale=lambda self, problem: 1.0)


def failure(subject, text):
    case = parse_case(text)
    return case, judge_case(subject, case, Plan.only("accuracy", case)).failures[0]


@pytest.mark.parametrize(("alone", "asked"), [(True, []), (False, ["state"]), (None, ["state"])])
def test_state_is_asked_about_after_names_where_a_fresh_process_fails_too(alone, asked, monkeypatch):
    seen = []
    monkeypatch.setattr(diagnosing, "of_a_later_call", lambda *_, **__: seen.append("state"))
    subject = unscaled()
    found = diagnose(subject, *failure(subject, FORWARD), seconds=60, afresh=lambda: alone)

    assert (found.name, seen) == ("scale-missing", asked)


def test_what_has_no_name_is_still_asked_about_state_where_a_fresh_process_fails_too(monkeypatch):
    said = diagnosing.Diagnosis("stale-v", "V is that of the call before.")
    monkeypatch.setattr(diagnosing, "of_a_later_call", lambda *_, **__: said)
    for name in ("named", "named_at_places"):
        monkeypatch.setattr(diagnosing, name, lambda *_: None)
    subject = unscaled()

    assert diagnose(subject, *failure(subject, FORWARD), seconds=60, afresh=lambda: True) == said


def test_a_fresh_process_is_waited_for_before_the_time_of_a_diagnosis_begins(monkeypatch):
    order, begin = [], Clock.ending
    monkeypatch.setattr(Clock, "ending", lambda *limits: order.append("clock") or begin(*limits))
    subject = unscaled()
    bundled.diagnose(subject, *failure(subject, FORWARD), seconds=60, afresh=lambda: order.append("process"))

    assert order == ["process", "clock"]


def test_no_time_is_left_where_the_fresh_process_took_it_all(monkeypatch):
    now, limits, begin = [0.0], [], Clock.ending
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Clock, "ending", lambda *each: limits.append(each) or begin(*each))
    subject = unscaled()
    case, verdict = failure(subject, FORWARD)
    bundled.diagnose(subject, case, verdict, seconds=7, afresh=lambda: now.__setitem__(0, 4.0))
    bundled.diagnose(subject, case, verdict, seconds=7, afresh=lambda: now.__setitem__(0, 40.0))

    assert limits == [(3.0, 3.0), (0.0, 0.0)]


def test_the_case_seen_first_is_run_where_the_smaller_one_gives_no_name():
    trials = Trials(unscaled(), 60.0)
    small, first = trials.scene(parse_case(FORWARD)), parse_case(LARGER)
    starts = [small]
    each = and_the_first(trials, starts, first)

    assert next(each) is small
    assert not trials.known(first)
    assert next(each).case == first
    assert [scene.case for scene in starts] == [small.case, first]
    assert [scene.case for scene in and_the_first(trials, starts, first)] == [small.case, first]


def test_the_case_seen_first_is_not_run_where_it_is_right_or_would_take_too_long():
    right, late = Trials(Plain(), 60.0), Trials(unscaled(), 0.0)
    small, first = late.scene(parse_case(FORWARD)), parse_case(LARGER)

    assert list(and_the_first(right, [small], first)) == [small]
    assert right.known(first)
    assert list(and_the_first(late, [small], first)) == [small]
    assert not late.known(first)


def test_a_name_is_given_without_the_case_seen_first(monkeypatch):
    subject = unscaled()
    case, verdict = failure(subject, FORWARD)
    first, run = parse_case(LARGER), []
    monkeypatch.setattr(Trials, "scene", lambda self, each, own=Trials.scene: run.append(each) or own(self, each))

    assert diagnose(subject, case, verdict, first=first, seconds=60).name == "scale-missing"
    assert first not in run


def test_no_model_of_rounding_is_asked_of_what_is_not_a_number(monkeypatch):
    monkeypatch.setattr(wording, "_scenes", lambda *_: pytest.fail("further cases were run"))
    subject = moved(o=lambda x, problem: torch.full_like(x, torch.nan))
    case, verdict = failure(unscaled(), FORWARD)

    assert precision_words(subject, case, verdict, Clock().end(60)) is None


def test_a_tensor_that_fewer_heads_than_a_group_share_is_held_against_every_rule():
    """A bias of one head in a group of two: `h % (number of kv heads)` has no kv head to divide by."""
    subject = moved(dbias=lambda x, problem: 3.0 * x + 1.0)
    trials = Trials(subject, 60.0)
    scene = trials.scene(parse_case("fv1 heads_q=2 seq_k=3 dim_qk=8 dim_v=8 dtype=fp32 bias=shared"))

    assert sum(1 for _ in rules()) > 20
    assert set(scene.failures) == {"dbias"}
    assert values_elsewhere(trials, scene, "dbias") == ()
