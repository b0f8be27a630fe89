"""What a known cause accounts for on the way to a minimal case is neither diagnosed anew nor verified."""

import math

import msgspec
import pytest

from flashverify.campaign.protocol import Improved, Judged, Minimal, Minimise, WorkerConfig
from flashverify.campaign.worker import minimise as minimising
from flashverify.campaign.worker.fresh import Fresh
from flashverify.campaign.worker.minimise import minimise
from flashverify.case.text import format_case, parse_case
from flashverify.judge.record import Confirmation, Diagnosis
from flashverify.judge.verdict import CaseResult, Key, Status, Verdict

OUT, LSE = Key("k", "accuracy", "bound", "o", "fp16"), Key("k", "accuracy", "bound", "lse", "fp16")
KNOWN = Diagnosis("causal-ignored")
FIRST = "fv1 seq_q=4 seq_k=4 causal=top-left softcap=2 backward=no"


class Session:
    """O is wrong with a causal mask, and the LSE with it; a known diagnosis has its say without a softcap."""

    setup = WorkerConfig("fake_toolkit:toolkit", "cpu", "", 0, 10.0)

    def __init__(self, says=True):
        self.toolkit, self.says, self.events, self.diagnosed = self, says, [], 0

    def subject(self, spec):
        return spec

    def judge(self, spec, case, plan):
        wrong = [OUT, LSE] if case.mask.causal else []
        verdicts = [Verdict(check=k.check, status=Status.FAIL, error=k.error, output=k.output) for k in wrong]
        return CaseResult(format_case(case), "k", "cpu", tuple(verdicts))

    def attributed(self, subject, case, verdict, diagnosis):
        return self.says if case.logits.softcap is None else None

    def diagnose(self, *asked, **given):
        self.diagnosed += 1
        return Diagnosis("", "It is described.")

    def emit(self, event):
        self.events.append(event)

    def minimised(self, **given):
        verdict = Verdict(check="accuracy", status=Status.FAIL, error="bound", output="o")
        minimise(self, Minimise("k", OUT, FIRST, FIRST, verdict, 5.0, 0, **given))
        (found,) = [event for event in self.events if isinstance(event, Minimal)]
        return found


def test_a_known_diagnosis_ends_the_shrinking():
    told, untold = Session(), Session(says=False)

    assert told.minimised(known=(KNOWN,)).diagnosis == KNOWN
    assert told.diagnosed == 0
    assert untold.minimised(known=(KNOWN,)).diagnosis.sentence == "It is described."
    steps = [sum(isinstance(event, Improved) for event in session.events) for session in (told, untold)]
    assert steps[0] < steps[1], "nothing smaller is looked for"


def test_a_second_cause_is_never_given_the_diagnosis_that_it_was_told_apart_from():
    second = Session()
    second_key = msgspec.structs.replace(OUT, cause=1)
    verdict = Verdict(check="accuracy", status=Status.FAIL, error="bound", output="o")
    minimise(second, Minimise("k", second_key, FIRST, FIRST, verdict, 5.0, 0, known=(KNOWN,)))

    assert second.events[-1].diagnosis != KNOWN


@pytest.mark.parametrize(("beside", "diagnosed"), [((LSE,), 0), ((msgspec.structs.replace(LSE, output="dq"),), 1)])
def test_a_minimal_case_that_shows_what_it_was_never_seen_without_is_not_diagnosed(beside, diagnosed):
    session = Session()
    found = session.minimised(beside=beside)

    assert session.diagnosed == diagnosed
    assert set(found.shows) == {OUT, LSE}
    assert found.complete


@pytest.mark.parametrize(("named", "kept"), [(False, True), (True, False)])
def test_where_a_diagnosis_says_little_the_search_for_repairs_goes_on_behind_the_finding(named, kept, monkeypatch):
    class Endless:
        """A search for repairs that finds none."""

        answers, failure, closed = (), "", False

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.closed = True

        def look(self):
            return False

    class Keeping(Session):
        def keep_aside(self, key, mender):
            self.kept = (key, mender, isinstance(self.events[-1], Minimal))

        def diagnose(self, *asked, **given):
            return Diagnosis("a-name", "It is named.") if named else super().diagnose()

    session, mender = Keeping(), Endless()
    monkeypatch.setattr(minimising, "_mender", lambda *_: mender)
    session.minimised()

    assert mender.closed is not kept
    assert getattr(session, "kept", None) == ((OUT, mender, True) if kept else None)


@pytest.mark.parametrize(("mode", "rows"), [("end-to-end", 2), ("strict", 1)])
def test_what_is_outside_its_bound_is_not_made_a_failure_of_the_strict_prediction_alone(mode, rows):
    class Strict(Session):
        """With a single row only the strict prediction fails."""

        def judge(self, spec, case, plan):
            seen = "end-to-end" if case.seq_q > 1 else "strict"
            verdict = Verdict(check="accuracy", status=Status.FAIL, error="bound", output="o", mode=seen)
            return CaseResult(format_case(case), "k", "cpu", (verdict,))

    session = Strict()
    verdict = Verdict(check="accuracy", status=Status.FAIL, error="bound", output="o", mode=mode)
    minimise(session, Minimise("k", OUT, FIRST, FIRST, verdict, 5.0, 0))

    assert parse_case(session.events[-1].case).seq_q == rows


def test_what_is_wrong_is_told_before_the_verification_that_may_not_end_in_time():
    session = Session(says=False)
    found = session.minimised()

    *_, told, minimal = session.events
    assert (told.case, told.diagnosis) == (found.case, found.diagnosis)
    assert isinstance(told, Improved)
    assert minimal is found


@pytest.mark.parametrize("name", ["stale-scale", "causal-ignored"])
def test_of_a_failure_that_no_fresh_process_shows_only_what_is_kept_between_calls_has_a_name(monkeypatch, name):
    class Kept(Session):
        def diagnose(self, *asked, **given):
            return Diagnosis(name, "It is so.")

    alone = "In a process that computed nothing before, the case does not fail in this way: it depends on earlier calls, on what lay in memory, or on chance."
    monkeypatch.setattr(minimising.Fresh, "verified", lambda self, text, verdict: (verdict, Confirmation(3, 0)))
    found = Kept(says=False).minimised().diagnosis

    kept = name == "stale-scale"
    here = "In the process that found it, after other calls, it computed so: It is so."
    assert (found.name, found.sentence) == (name * kept, f"It is so. {alone}" if kept else f"{alone} {here}")


class Elsewhere:
    """Another process, in which the case fails or does not; how often it was asked, and how often it was a new one."""

    def __init__(self, *fails):
        self.fails, self.asked, self.fresh = fails, 0, 0

    def refresh(self):
        self.fresh += 1

    def judge(self, task, *, deadline):
        self.asked += 1
        if task.confirm is not None:
            return Judged(CaseResult(task.case, "k", "cpu", ()), Confirmation(oracle="mpmath"))
        failing = self.fails[min(self.asked, len(self.fails)) - 1]
        status = Status.FAIL if failing else Status.PASS
        verdict = Verdict(check="accuracy", status=status, error="bound", output="o")
        return Judged(CaseResult(task.case, "k", "cpu", (verdict,)))


def verdict_of(text):
    return Verdict(check="accuracy", status=Status.FAIL, error="bound", output="o", message=text)


def fresh(elsewhere, repeats=2):
    task = Minimise("k", OUT, FIRST, FIRST, verdict_of(""), 5.0, repeats)
    return Fresh(elsewhere, task, "only:accuracy", math.inf)


def test_what_a_fresh_process_said_for_the_diagnosis_is_not_asked_again():
    elsewhere = Elsewhere(True)
    found = fresh(elsewhere)

    assert found.fails(FIRST) is True
    assert found.verified(FIRST, verdict_of("here"))[1] == Confirmation(repeats=2, failed=2, oracle="mpmath")
    assert (elsewhere.asked, elsewhere.fresh) == (3, 1)


def test_another_case_is_verified_in_another_process():
    elsewhere = Elsewhere(False, True, True)
    found = fresh(elsewhere)

    assert found.fails(FIRST) is False
    assert found.verified(FIRST.replace("softcap=2 ", ""), verdict_of("here"))[1].failed == 2
    assert (elsewhere.asked, elsewhere.fresh) == (4, 2)


def test_nothing_is_known_of_fresh_processes_where_nothing_is_verified():
    elsewhere = Elsewhere(True)

    assert fresh(elsewhere, repeats=0).fails(FIRST) is None
    assert elsewhere.asked == 0


@pytest.mark.parametrize(("known", "answer"), [((KNOWN,), None), ((KNOWN, Diagnosis("stale-causal")), False)])
def test_where_no_fresh_process_is_asked_a_finding_of_state_says_what_one_would_show(known, answer):
    class Asking(Session):
        def diagnose(self, *asked, afresh, **given):
            self.answer = afresh()
            return super().diagnose(*asked, **given)

    session = Asking(says=False)
    session.minimised(known=known)

    assert session.answer is answer
