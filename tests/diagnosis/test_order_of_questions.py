"""What a diagnosis asks first: the time is short, and each question that is asked in vain takes some of it."""

import pytest
import torch

import flashverify.diagnosis.diagnose as diagnosing
import flashverify.diagnosis.precision.words as wording
from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.precision import precision_words
from flashverify.diagnosis.readings.elsewhere.rules import rules
from flashverify.diagnosis.readings.elsewhere.values import values_elsewhere
from flashverify.diagnosis.starting import and_the_first
from flashverify.diagnosis.state import suspecting
from flashverify.diagnosis.trials import Trials
from flashverify.judge.verdict import Status, Verdict
from tests.diagnosis.planted import Plain
from tests.diagnosis.test_diagnosis import FORWARD, planted
from tests.diagnosis.test_elsewhere import moved

LARGER = FORWARD.replace("seq_k=7", "seq_k=70")


def unscaled():
    return planted(scale=lambda self, problem: 1.0)


def failure(subject, text):
    case = parse_case(text)
    return case, judge_case(subject, case, Plan.only("accuracy", case)).failures[0]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("alone", "kept", "asked"),
    [(True, True, []), (True, False, []), (False, True, ["state"]), (None, True, ["state"]), (None, False, ["state"])],
)
def test_state_is_asked_about_after_names_and_not_where_a_fresh_process_fails_too(alone, kept, asked, monkeypatch):
    order, own = [], diagnosing.named
    stale = diagnosing.Diagnosis("stale-scale", "The scale is that of the call before.")
    monkeypatch.setattr(diagnosing, "named", lambda *each: order.append("name") or own(*each))
    monkeypatch.setattr(
        diagnosing, "of_a_later_call", lambda *_, **__: order.append("state") or (stale if kept else None)
    )
    subject = unscaled()
    found = diagnose(subject, *failure(subject, FORWARD), seconds=60, afresh=lambda: alone)

    assert (found.name, order) == ("stale-scale" if kept and asked else "scale-missing", ["name", *asked])


@pytest.mark.parametrize(
    ("check", "alone", "told"),
    [("sanitizer", True, True), ("memory", True, True), ("sanitizer", None, None), ("relations", True, None)],
)
def test_an_access_that_a_fresh_process_shows_too_is_no_work_of_earlier_calls(check, alone, told, monkeypatch):
    """Values behind the end of a tensor change with what lay there before, which looks like something that is kept."""
    answers = []
    monkeypatch.setattr(diagnosing, "of_a_later_call", lambda *_, afresh, **__: answers.append(afresh()))
    subject, case = planted(), parse_case(FORWARD)
    diagnose(subject, case, Verdict(check=check, status=Status.FAIL, error="read"), seconds=60, afresh=lambda: alone)

    assert answers == [told]


def test_state_is_asked_about_within_the_time_of_a_diagnosis(monkeypatch):
    limits, clock = [], Clock()
    monkeypatch.setattr(diagnosing, "of_a_later_call", lambda *_, until, **__: limits.append(until))
    subject = unscaled()
    begun = clock()
    diagnose(subject, *failure(subject, FORWARD), seconds=60, clock=clock)

    assert [begun + 59 < limit.at < begun + 90 for limit in limits] == [True]


@pytest.mark.parametrize("over", [0, 2, 4, 6])
def test_no_call_is_made_about_state_after_that_time(over, monkeypatch):
    """The questions about first calls, calls in between and kinds of pairs take two seconds each."""
    now, asked = [0.0], []
    clock = Clock(wall=lambda: now[0], starved=lambda: 0.0)

    def question(name):
        def ask(*_, **__):
            asked.append((name, now[0]))
            now[0] += 2.0

        return ask

    names = ("draws_of_the_first_call", "of_the_first_call", "follows_another", "suspected")
    for name in (*names, "advancing_draws"):
        monkeypatch.setattr(suspecting, name, question(name) if name in names else lambda *_: None)
    case = parse_case(FORWARD)

    assert suspecting.of_a_later_call(unscaled(), case, 60, clock, until=clock.end(over - 0.5)) is None
    assert [name for name, _ in asked[:4]] == list(names[: over // 2])


def test_the_shares_of_questions_about_state_end_with_the_diagnosis(monkeypatch):
    ends, clock = [], Clock()
    monkeypatch.setattr(suspecting, "suspected", lambda subject, case, end, **_: ends.append(end.at))
    until = clock.end(1.0)
    suspecting.of_a_later_call(unscaled(), parse_case(FORWARD), 600, clock, until=until)

    assert ends
    assert max(ends) <= until.at + 0.1


def test_what_has_no_name_is_still_asked_about_state_where_a_fresh_process_fails_too(monkeypatch):
    said = diagnosing.Diagnosis("stale-v", "V is that of the call before.")
    monkeypatch.setattr(diagnosing, "of_a_later_call", lambda *_, **__: said)
    for name in ("named", "named_at_places"):
        monkeypatch.setattr(diagnosing, name, lambda *_: None)
    subject = unscaled()

    assert diagnose(subject, *failure(subject, FORWARD), seconds=60, afresh=lambda: True) == said


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


def test_a_calm_case_of_moderate_size_stands_for_the_one_seen_first_if_it_fails_likewise():
    first = parse_case(LARGER.replace("=70", "=150").replace("fp32", "bf16") + "regime=logits-1e3 scale=0.3 ")
    wild = planted(
        scale=lambda self, problem: 1.0 if problem.case.values.regime != "normal" else problem.case.softmax_scale
    )
    small = Trials(unscaled(), 60.0).scene(parse_case(FORWARD))

    [_, calm] = and_the_first(Trials(unscaled(), 60.0), [small], first)
    assert (calm.case.seq_k, calm.case.dtype, calm.case.values.regime, calm.case.scale) == (70, "fp32", "normal", None)
    [_, itself] = and_the_first(Trials(wild, 60.0), [small], first)
    assert itself.case == first


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


def test_no_model_of_rounding_is_asked_after_its_time():
    run, wrong = [], unscaled()
    case, verdict = failure(wrong, FORWARD)

    def forward(self, problem):
        run.append(problem.case)
        return wrong.forward(problem)

    assert precision_words(planted(forward=forward), case, verdict, Clock().end(-1.0)) is None
    assert run == []


def test_a_tensor_that_fewer_heads_than_a_group_share_is_held_against_every_rule():
    """A bias of one head in a group of two: `h % (number of kv heads)` has no kv head to divide by."""
    subject = moved(dbias=lambda x, problem: 3.0 * x + 1.0)
    trials = Trials(subject, 60.0)
    scene = trials.scene(parse_case("fv1 heads_q=2 seq_k=3 dim_qk=8 dim_v=8 dtype=fp32 bias=shared"))

    assert sum(1 for _ in rules()) > 20
    assert set(scene.failures) == {"dbias"}
    assert values_elsewhere(trials, scene, "dbias") == ()
