"""A subject that cannot run is told so, and is no finding; one that sometimes raises is."""

import pytest

from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import FindingSeen
from flashverify.campaign.supervisor.first_cases import FEW, MANY, FirstCases
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.errors import NoVerdictError, UsageError
from flashverify.judge.verdict import CaseResult, Status, Verdict
from tests.campaign.unable_toolkit import RAISED

PASSED = (Verdict("memory", Status.PASS), Verdict("accuracy", Status.PASS))


def result(name="", number=1, *, verdicts=PASSED, backward=True):
    if name:
        kind, message = RAISED[name]
        verdicts = (Verdict("exception", Status.FAIL, kind, "exception", message=message, traceback="Traceback"),)
    text = f"fv1 seq_q={number}" + (" backward=no" if not backward else "")
    return CaseResult(case=text, subject="mine", evidence="cpu", verdicts=verdicts)


def kept(cases, found):
    return [[one.case for one, _ in cases.take(each, "m:mine")] for each in found]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-gpu", ("it needs a GPU", "0 active drivers")),
        ("no-package", ("not installed", "No module named 'flash_attn'")),
    ],
)
def test_what_a_subject_lacks_is_said_after_a_few_cases_and_none_of_them_counts(name, words):
    cases = FirstCases()
    assert kept(cases, [result(name, n) for n in range(1, FEW)]) == [[]] * (FEW - 1)
    assert cases.held == FEW - 1
    with pytest.raises(NoVerdictError) as caught:
        cases.take(result(name, FEW), "m:mine")
    message = str(caught.value)
    assert message.startswith("the subject could not run: ")
    assert all(word in message for word in words)
    assert f"each of its first {FEW} cases" in message
    assert "flashverify replay 'fv1 seq_q=4' --subject m:mine" in message


def test_one_case_that_runs_makes_findings_of_those_that_did_not():
    cases = FirstCases()
    found = kept(cases, [result("no-gpu", 1), result("no-gpu", 2), result(number=3), *[result("no-gpu", 4)] * MANY])
    assert found[:3] == [[], [], ["fv1 seq_q=1", "fv1 seq_q=2", "fv1 seq_q=3"]]
    assert found[3:] == [["fv1 seq_q=4"]] * MANY
    assert cases.held == 0


@pytest.mark.parametrize(
    "other",
    [
        result("no-package", 9),
        result(number=9, verdicts=(*PASSED, *result("no-gpu").verdicts)),
        result(number=9, verdicts=(Verdict("accuracy", Status.FAIL, "o", "bound", message="o is off"),)),
    ],
)
def test_another_exception_one_after_an_output_and_a_failure_speak_for_the_subject(other):
    cases = FirstCases()
    assert kept(cases, [result("no-gpu"), other]) == [[], ["fv1 seq_q=1", "fv1 seq_q=9"]]


def test_a_subject_that_refuses_cases_says_nothing_by_it():
    cases = FirstCases()
    refused = result(number=2, verdicts=(Verdict("supports", Status.UNSUPPORTED, message="no"),))
    assert kept(cases, [result("no-gpu"), refused]) == [[], ["fv1 seq_q=2"]]
    assert cases.held == 1


def test_a_subject_without_backward_is_told_how_to_declare_that_though_its_forward_runs():
    cases = FirstCases()
    forward = [result(number=7, backward=False), result(number=8, backward=False)]
    assert kept(cases, [forward[0], result("no-backward"), forward[1]]) == [
        ["fv1 seq_q=7 backward=no"],
        [],
        ["fv1 seq_q=8 backward=no"],
    ]
    with pytest.raises(
        UsageError, match=r"'m:mine'.*first 4 cases with a backward.*supports=Supports\(backward=False\)"
    ):
        kept(cases, [result("no-backward", n) for n in range(2, FEW + 1)])


def test_one_gradient_that_is_right_makes_findings_of_those_that_are_missing():
    cases = FirstCases()
    found = kept(cases, [result(number=7, backward=False), result("no-backward"), result(number=3)])
    assert found == [["fv1 seq_q=7 backward=no"], [], ["fv1 seq_q=1", "fv1 seq_q=3"]]
    assert kept(cases, [result("no-backward", 5)] * FEW) == [["fv1 seq_q=5"]] * FEW


def test_a_forward_that_ran_without_a_gpu_is_no_subject_that_needs_one():
    cases = FirstCases()
    assert kept(cases, [result(backward=False), result("no-gpu", 2)]) == [["fv1 seq_q=1 backward=no"], ["fv1 seq_q=2"]]


def test_an_unknown_exception_is_a_finding_at_once_and_ends_a_run_in_which_nothing_else_happens():
    cases = FirstCases()
    assert kept(cases, [result("misspelt", n) for n in range(1, MANY)]) == [[f"fv1 seq_q={n}"] for n in range(1, MANY)]
    with pytest.raises(NoVerdictError, match="every case raises the same exception"):
        cases.take(result("misspelt", MANY), "m:mine")


def raising(word, line, number):
    trace = f'Traceback\n  File "mine.py", line {line}, in mine\nTypeError: expected {word}'
    verdict = Verdict("exception", Status.FAIL, "TypeError", "exception", message=f"expected {word}", traceback=trace)
    return result(number=number, verdicts=(verdict,))


def test_an_exception_from_the_same_line_is_the_same_whatever_it_names():
    cases = FirstCases()
    words = ("Half", "Float")
    kept(cases, [raising(words[n % 2], 7, n) for n in range(1, MANY)])
    with pytest.raises(NoVerdictError, match=f"each of its first {MANY} cases raised expected Half"):
        cases.take(raising("Half", 7, MANY), "m:mine")


def test_exceptions_from_two_lines_are_findings():
    cases = FirstCases()
    found = kept(cases, [raising(f"one of {'ab'[n % 2]}", n % 2, n) for n in range(1, MANY + 5)])
    assert all(found)


def test_a_run_that_ends_before_it_is_decided_ends_with_what_is_known():
    cases = FirstCases()
    cases.take(result("no-gpu"), "m:mine")
    with pytest.raises(NoVerdictError, match="its first case raised"):
        cases.end()
    cases.take(result(number=2), "m:mine")
    cases.end()


def test_a_resumed_run_is_not_watched():
    cases = FirstCases(resumed=True)
    assert kept(cases, [result("no-gpu")] * MANY) == [["fv1 seq_q=1"]] * MANY


def run(out, subject, **changes):
    events = []
    given = {"kind": "run", "subjects": (subject,), "out": out, "device": "cpu", "workers": 1, "case_limit": 20.0}
    engine = Engine(
        CampaignConfig(**(given | {"toolkit": "tests.campaign.unable_toolkit:toolkit"} | changes)), (events.append,)
    )
    engine.run()
    return events


def test_a_campaign_ends_without_a_finding(tmp_path):
    with pytest.raises(NoVerdictError, match="it needs a GPU"):
        run(tmp_path / "run", "no-gpu")
    assert open_run(tmp_path / "run").findings == ()


def test_a_search_that_was_to_end_sooner_ends_with_the_same_words(tmp_path):
    with pytest.raises(NoVerdictError, match=r"it needs a GPU.*\n.*each of its first 2 cases"):
        run(tmp_path / "run", "no-gpu", kind="fuzz", max_cases=2, batch=1, max_findings=1)
    assert open_run(tmp_path / "run").findings == ()


def test_the_first_failure_of_an_unknown_kind_is_told_before_the_campaign_ends(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(Engine, "_tell", lambda _, event: told.append(event))
    with pytest.raises(NoVerdictError, match=f"each of its first {MANY} cases raised TypeError"):
        run(tmp_path / "run", "misspelt", kind="fuzz", max_cases=100, batch=50)
    assert [type(event) for event in told if isinstance(event, FindingSeen)] == [FindingSeen]
