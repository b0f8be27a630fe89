"""Values that are not finite belong to the finding that makes the values of their minimal case wrong otherwise."""

from types import SimpleNamespace

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.overflows import of_a_step, overflows
from flashverify.campaign.protocol import Minimal, Minimise, WorkerConfig
from flashverify.campaign.worker.minimise import minimise
from flashverify.campaign.worker.overflow import with_plain_values
from flashverify.case.text import format_case, parse_case
from flashverify.judge.record import Confirmation, Diagnosis
from flashverify.judge.verdict import CaseResult, Key, Status, Verdict
from tests.campaign.company_seen import book

NAN, OUT = Key("k", "nonfinite", "nan", "o", "fp16"), Key("k", "accuracy", "bound", "o", "fp16")
CASE = "fv1 seq_q=2 seq_k=2 softcap=2 regime=logits-1e4 backward=no"
LESS = "fv1 seq_q=2 seq_k=2 regime=logits-1e4 backward=no"


def verdict(key):
    return Verdict(check=key.check, status=Status.FAIL, error=key.error, output=key.output)


def result(case, *keys):
    return CaseResult(format_case(case), "k", "cpu", tuple(map(verdict, keys)))


def judged(case, cap=True, plain=True):
    """With large logits O is NaN where there is a cap, otherwise it is wrong: there too, or always."""
    if case.values.regime == "logits-1e4":
        return result(case, *([NAN] if case.logits.softcap else []))
    return result(case, *([OUT] if plain and (case.logits.softcap or not cap) else []))


@pytest.mark.parametrize(
    ("case", "cap", "plain", "key", "found"),
    [
        (CASE, True, True, NAN, True),
        (CASE, False, True, NAN, False),  # always at work: nothing links the two
        (CASE, True, False, NAN, False),  # right with plain values
        (CASE, True, True, OUT, False),
        (LESS, False, True, NAN, False),  # no part that both could need
    ],
)
def test_a_case_with_plain_values_tells_where_both_need_a_part(case, cap, plain, key, found):
    seen = with_plain_values(lambda each, _: judged(each, cap, plain), lambda _: True, parse_case(case), key)

    assert (seen is not None) == found
    if seen is not None:
        assert seen[0].values.regime == "normal"
        assert [sighting.key for sighting in seen[1]] == [OUT]


ROUNDS = Diagnosis(sentence="Errors of O look like the logits in base 2, rounded to fp16.", evidence="Predicted.")


@pytest.mark.parametrize(
    ("key", "diagnosis", "belongs"),
    [
        (NAN, ROUNDS, True),
        (msgspec.structs.replace(NAN, output="lse"), ROUNDS, True),
        (msgspec.structs.replace(NAN, output="dk"), ROUNDS, False),
        (msgspec.structs.replace(NAN, dtype="bf16"), ROUNDS, False),
        (OUT, ROUNDS, False),
        (NAN, msgspec.structs.replace(ROUNDS, evidence=""), False),
        (NAN, msgspec.structs.replace(ROUNDS, sentence=ROUNDS.sentence.replace("fp16", "bf16")), False),
        (NAN, msgspec.structs.replace(ROUNDS, name="scale-missing"), False),
        (NAN, None, False),
    ],
)
def test_what_a_kernel_rounds_to_fp16_overflows_there(key, diagnosis, belongs):
    causes, records = book(Company(), OUT, key, diagnosis=diagnosis) if key != OUT else book(Company(), OUT)
    words = "what it rounds to fp16 overflows"
    lead = msgspec.structs.replace(records[OUT], diagnosis=diagnosis)

    assert of_a_step(key, lead) == overflows(records[key], lead, ()) == words * belongs
    assert [why for *_, why in causes.companions(over=True) if why == words] == [words] * belongs


class Session:
    """A cap makes O wrong, and NaN with large logits."""

    setup = WorkerConfig("fake_toolkit:toolkit", "cpu", "", 0, 10.0)

    def __init__(self, accounts):
        self.toolkit, self.accounts, self.events = self, accounts, []

    def subject(self, spec):
        return spec

    def judge(self, spec, case, plan):
        return judged(case)

    def refusal(self, subject, case):
        return None

    def attributed(self, subject, case, verdict, diagnosis):
        return self.accounts if verdict.check == "accuracy" else False

    def diagnose(self, *asked, **given):
        return Diagnosis("", "It is described.")

    def emit(self, event):
        self.events.append(event)


@pytest.mark.parametrize("accounts", [True, False])
@pytest.mark.parametrize("cause", [0, 1])
def test_a_name_that_accounts_for_the_case_with_plain_values_is_that_of_the_finding(accounts, cause):
    session, known = Session(accounts), Diagnosis("cap-ignored")
    key = Key("k", "nonfinite", "nan", "o", "fp16", cause)
    minimise(session, Minimise("k", key, CASE, CASE, verdict(NAN), 5.0, 0, known=(known,)))
    (found,) = [event for event in session.events if isinstance(event, Minimal)]

    assert (found.diagnosis == known) == accounts
    assert {OUT, NAN} <= set(found.shows)


def finding(key, case, **given):
    fields = {"not_minimal": "", "diagnosis": None, "confirmation": Confirmation(repeats=2, failed=2)}
    return SimpleNamespace(key=key, case=case, first=case, verdict=verdict(key), folded=(), **(fields | given))


WRONG = finding(OUT, "fv1 softcap=2 backward=no")
INFINITE = finding(NAN, CASE)
SHOWN = {("accuracy", "bound", "o")}


def test_values_that_are_not_finite_go_to_the_finding_that_needs_the_same():
    assert "needs the same" in overflows(INFINITE, WRONG, SHOWN)


@pytest.mark.parametrize(
    ("found", "lead", "shown"),
    [
        (INFINITE, WRONG, set()),
        (WRONG, INFINITE, SHOWN),
        (finding(NAN, LESS), WRONG, SHOWN),  # the case lacks what the other one needs
        (INFINITE, finding(OUT, "fv1 backward=no"), SHOWN),  # which needs nothing
        (finding(NAN, CASE, not_minimal="late"), WRONG, SHOWN),
        (finding(NAN, CASE, diagnosis=Diagnosis("max-missing")), WRONG, SHOWN),
        (INFINITE, finding(OUT, "fv1 softcap=2 backward=no", confirmation=Confirmation(2, 0)), SHOWN),
    ],
)
def test_others_stay_two(found, lead, shown):
    assert overflows(found, lead, shown) == ""
