"""A failing campaign: the search goes on, findings are explained within a share of the time, and nothing is lost."""

import pytest

from flashverify.campaign.commands.terminal import verdict_lines
from flashverify.campaign.shrink.shrinker import measure
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import FindingMinimal, FindingSeen, Finished, Progress
from flashverify.campaign.supervisor.ledger import CUT_SHORT, SWITCHED_OFF, TIME_OVER
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.case.text import parse_case
from flashverify.judge.verdict import Status
from flashverify.report import write_report


def config(out, subject, **changes):
    given = {"kind": "fuzz", "subjects": (subject,), "out": out, "device": "cpu", "workers": 2, "max_cases": 120}
    given |= {"batch": 40, "toolkit": "fake_toolkit:toolkit", "case_limit": 20.0, "shrink_seconds": 20.0}
    return CampaignConfig(**(given | changes))


def campaign(out, subject, **changes):
    events = []
    engine = Engine(config(out, subject, **changes), (events.append,))
    return engine.run(), events


def records(out):
    return [finding.record for finding in open_run(out).findings]


def kinds(events, kind):
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.slow
def test_findings_that_there_is_no_time_to_explain_are_stored_with_their_smallest_case_and_say_so(tmp_path):
    summary, events = campaign(tmp_path / "run", "two", explain_seconds=0.5)

    assert (summary.exit_code, summary.stopped, summary.findings) == (1, "budget", 2)
    assert summary.cases >= 100, "the search went on"
    assert kinds(events, FindingMinimal) == []
    found = records(tmp_path / "run")
    assert [(r.confirmation.repeats, r.not_minimal) for r in found] == [(0, TIME_OVER)] * 2
    for record in found:
        failing = [
            r.case
            for r in open_run(tmp_path / "run").results()
            if record.verdict.check in {v.check for v in r.failures}
        ]
        assert record.case == min(failing, key=lambda text: measure(parse_case(text)))
    lines = verdict_lines(summary, found, {}, tmp_path, ())
    assert lines.count(f"  not minimal: {TIME_OVER}") == 2
    _, text, _ = write_report(tmp_path / "run")
    assert f"Case, not minimal: {TIME_OVER}" in text.read_text(encoding="utf-8")


@pytest.mark.slow
def test_findings_that_nothing_tells_apart_are_one_when_the_time_is_over(tmp_path):
    summary, events = campaign(tmp_path / "run", "everything", explain_seconds=0.5)

    (record,) = records(tmp_path / "run")
    assert (summary.findings, record.key.output, kinds(events, FindingMinimal)) == (1, "o", [])
    assert {folded.why for folded in record.folded} == {
        f"seen on {record.count} cases, never without it; nothing tells it apart"
    }


@pytest.mark.slow
@pytest.mark.thorough
def test_a_minimal_finding_says_nothing_of_the_kind(tmp_path):
    campaign(tmp_path / "run", "tail", max_cases=20)

    (record,) = records(tmp_path / "run")
    assert (record.not_minimal, record.confirmation.repeats) == ("", 3)


@pytest.mark.thorough
def test_without_shrinking_a_finding_is_verified_as_it_was_seen(tmp_path):
    campaign(tmp_path / "run", "tail", max_cases=20, shrink=False)

    (record,) = records(tmp_path / "run")
    assert (record.case, record.not_minimal, record.confirmation.failed) == (record.first, SWITCHED_OFF, 3)


def test_the_search_ends_at_as_many_findings_as_asked_for_and_they_are_explained(tmp_path):
    summary, events = campaign(tmp_path / "run", "tail", workers=1, max_cases=5000, max_findings=1)

    assert (summary.exit_code, summary.stopped, summary.findings) == (1, "findings", 1)
    assert summary.cases < 200
    assert len(kinds(events, FindingMinimal)) == 1
    results = [bool(r.failures) for r in open_run(tmp_path / "run").results()]
    assert results == [False] * (len(results) - 1) + [True], "the failing case is the last one"
    lines = verdict_lines(summary, records(tmp_path / "run"), {}, tmp_path, ())
    assert lines[0] == "FAIL: 1 finding; the search ended there, as asked"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_second_finding_is_awaited_where_two_are_asked_for(tmp_path):
    summary, _ = campaign(tmp_path / "run", "two", max_cases=5000, max_findings=2)

    assert (summary.stopped, {r.key.check for r in records(tmp_path / "run")}) == ("findings", {"accuracy", "memory"})


@pytest.mark.slow
@pytest.mark.thorough
def test_a_run_that_ended_at_a_finding_can_go_on(tmp_path):
    campaign(tmp_path / "run", "two", workers=1, max_cases=100, max_findings=1)
    summary, _ = campaign(tmp_path / "run", "two", workers=1, max_cases=100)

    assert (summary.stopped, len(records(tmp_path / "run"))) == ("budget", 2)
    assert 90 <= summary.cases <= 100


class Late:
    """A clock that jumps to the end of the budget when something happens."""

    def __init__(self, engine, happens, by):
        self.now, self.happens, self.by = 0.0, happens, by
        engine.budget = Budget(60.0, 120.0, clock=self)
        engine.explaining = Explaining(engine.budget, 2, share=1 / 3, least=None, clock=self)
        self.events = []

    def __call__(self):
        return self.now

    def listen(self, event):
        self.events.append(event)
        if isinstance(event, self.happens) and not self.now:
            self.now = self.by


@pytest.mark.parametrize("by", [68.0, 1000.0])
def test_a_minute_ends_at_its_end_whatever_was_found(tmp_path, by):
    listeners = []
    engine = Engine(config(tmp_path / "run", "slow-two", max_cases=None, seconds=60.0), listeners)
    late = Late(engine, FindingSeen, by)
    listeners.append(late.listen)
    summary = engine.run()

    assert (summary.exit_code, summary.stopped) == (1, "budget")
    after = [e for e in late.events if isinstance(e, Progress) and e.remaining == 0]
    assert len(after) <= 2, "the loop ends at once, and says where it stands"
    assert isinstance(late.events[-1], Finished)
    assert all(record.not_minimal in (TIME_OVER, CUT_SHORT) for record in records(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.thorough
def test_after_the_minute_only_explaining_goes_on(tmp_path):
    listeners = []
    engine = Engine(config(tmp_path / "run", "slow-two", max_cases=None, seconds=60.0), listeners)
    late = Late(engine, FindingSeen, 60.0)
    listeners.append(late.listen)
    summary = engine.run()

    assert summary.stopped == "budget"
    assert len(kinds(late.events, FindingMinimal)) == summary.findings >= 1


def test_a_matrix_with_a_time_budget_explains_in_the_last_third(tmp_path):
    engine = Engine(config(tmp_path / "run", "tail", kind="run", max_cases=None, seconds=60.0))
    clock = Late(engine, Finished, 60.0)

    beside = []
    for clock.now in (0.0, 39.0, 41.0, 59.0):
        beside.append(engine._beside)
    assert beside == [False, False, True, True]
    engine.store.close()


@pytest.mark.slow
def test_each_check_has_its_turn_at_being_explained(tmp_path):
    _, events = campaign(tmp_path / "run", "in-turns", max_cases=40, workers=1, shrink=False, repeats=1)

    checks = [event.record.key.check for event in kinds(events, FindingMinimal)]
    assert checks == ["accuracy", "memory", "accuracy"]


@pytest.mark.slow
@pytest.mark.thorough
def test_an_exception_carries_its_traceback_as_data(tmp_path):
    summary, _ = campaign(tmp_path / "run", "raises", max_cases=30)

    (record,) = records(tmp_path / "run")
    assert record.verdict.traceback == "Traceback:\n  <b>line 7</b>\nValueError: no"
    lines = verdict_lines(summary, (record,), {}, tmp_path, ())
    assert [line for line in lines if line.startswith("    ")] == [
        "    Traceback:",
        "      <b>line 7</b>",
        "    ValueError: no",
    ]


def test_an_exception_of_the_harness_is_an_error_with_its_cause_and_no_finding(tmp_path):
    out = tmp_path / "run"
    engine = Engine(config(out, "half-harness", workers=1, max_cases=30, shrink=False, repeats=0))
    summary = engine.run()

    errors = [v for r in open_run(out).results() for v in r.verdicts if v.status is Status.ERROR]
    assert {(v.check, v.error) for v in errors} == {("harness", "exception")}
    assert all(v.traceback.endswith("KeyError: 'dq'") for v in errors)
    assert [record.key.check for record in records(out)] == ["accuracy"]
    tally = engine.tally
    lines = verdict_lines(summary, (), {}, out, (), errors=tally.errors, first_error=tally.first_error)
    assert (summary.exit_code, tally.errors) == (1, len(errors))
    assert lines[2].startswith("not judged, first cause: the harness failed: KeyError: 'dq' (fake_toolkit.py:")


def test_cases_in_flight_are_given_up_soon_after_the_search_ended_at_a_finding(tmp_path):
    engine = Engine(config(tmp_path / "run", "clean"))

    before = engine._abandon_after()
    engine.stop("findings", 0)
    assert (before, engine._abandon_after()) == (None, 10.0)
    engine.store.close()
