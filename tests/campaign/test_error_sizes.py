"""Errors beyond what a step that rounds was seen to make, and outputs that a diagnosis calls wrong for another reason, have a cause of their own."""

import math

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.shown import ShownBeside
from flashverify.campaign.protocol import Shown
from flashverify.judge.record import Confirmation, Diagnosis, Folded
from flashverify.judge.verdict import CaseResult, Key, OutputStats, Status, Verdict
from tests.campaign import company_seen
from tests.campaign.company_seen import DK, OUT, TOUCHED, book


def like(step):
    return Diagnosis(
        "",
        f"Errors of O look like {step} (ratio to that model 1.00, 100 % of the squared error explained).",
        evidence="2 cases.",
    )


ROUNDS = like("the row sum of P rounded to bf16")
WRONG = Diagnosis("", "No known wrong semantics explains it.")
LSE = Key("k", "accuracy", "bound", "lse", "fp16")


def wrong(key, ratio, mode="end-to-end"):
    return Verdict(
        check=key.check, status=Status.FAIL, error=key.error, output=key.output, ratio=ratio.hex(), mode=mode
    )


def seen(company, *verdicts, case="fv1"):
    stats = tuple(OutputStats(each.output, each.mode, 4) for each in verdicts)
    company.add(CaseResult(case, "k", "cpu", verdicts, stats))


def two(company, diagnosis, first=OUT, second=DK):
    """Findings that were both explained; the first one has a diagnosis."""
    causes, records = book(company, first, second, diagnosis=diagnosis)
    for key in (first, second):
        records[key] = msgspec.structs.replace(records[key], confirmation=Confirmation(3, 3))
        causes.explained(key)
    return causes, records


@pytest.mark.parametrize(
    ("diagnosis", "usual", "most", "apart"),
    [
        (ROUNDS, 2.0, math.inf, True),
        (ROUNDS, 2.0, 129.0, True),
        (ROUNDS, 2.0, 127.0, False),
        (ROUNDS, 500.0, 20_000.0, False),
        (WRONG, 2.0, math.inf, False),
        (None, 2.0, 129.0, False),
        (like("the logits rounded to bf16"), 2.0, 129.0, False),
        (like("the logits rounded to bf16"), 2.0, math.inf, True),
        (like("dS times 1.003"), 2.0, 129.0, False),
        (like("dS truncated to bf16"), 2.0, 129.0, True),
        (like("dS truncated to bf16, or the logits rounded to bf16"), 2.0, 129.0, False),
    ],
)
def test_errors_far_beyond_those_of_a_step_that_rounds_have_another_cause(diagnosis, usual, most, apart):
    company = Company()
    seen(company, wrong(OUT, usual), wrong(DK, 2.0, "conditional"))
    seen(company, wrong(OUT, 1.5), wrong(DK, most, "conditional"))
    causes, _ = two(company, diagnosis)

    assert causes.apart(DK, OUT) is apart
    assert bool(list(causes.remaining.folds())) is not apart


@pytest.mark.parametrize(("mode", "own"), [("end-to-end", False), ("strict", False), ("conditional", True)])
def test_a_gradient_beside_a_wrong_o_is_as_wrong_as_it_is_given_that(mode, own):
    company = Company()
    seen(company, wrong(OUT, 2.0), wrong(DK, math.inf, mode))
    causes, _ = two(company, ROUNDS)

    assert causes.apart(DK, OUT) is own


def test_errors_are_held_against_the_largest_of_any_dtype():
    company, precise = Company(), msgspec.structs.replace(OUT, dtype="fp32")
    seen(company, wrong(OUT, 2.0))
    seen(company, wrong(precise, 4.0), case="fv1 dtype=fp32")
    seen(company, wrong(DK, 200.0, "conditional"))
    causes, records = two(company, ROUNDS)

    assert causes.apart(DK, OUT)
    folded = (Folded(precise, "fv1", "", "its minimal case in fp32 shows it too"),)
    records[OUT] = msgspec.structs.replace(records[OUT], folded=folded)
    assert not causes.apart(DK, OUT)


DQ = Key("k", "accuracy", "bound", "dq", "fp16")


@pytest.mark.parametrize(
    ("lead", "found", "ratio", "apart"),
    [
        (OUT, LSE, 1e6, False),
        (OUT, LSE, math.inf, True),
        (OUT, DQ, 1e6, True),
        (DQ, DK, 1e6, False),
        (DK, OUT, 1e6, False),
    ],
)
def test_only_gradients_have_errors_too_large_for_a_step_of_the_forward(lead, found, ratio, apart):
    company = Company()
    seen(company, wrong(lead, 2.0, "conditional"), wrong(found, ratio, "conditional"))
    causes, _ = two(company, ROUNDS, first=lead, second=found)

    assert causes.apart(found, lead) is apart


@pytest.mark.parametrize("over", [True, False])
@pytest.mark.parametrize(
    ("diagnosis", "key", "apart"),
    [
        (Diagnosis("merge-not-normalised", "It is.", beside=("lse",)), LSE, True),
        (Diagnosis("merge-not-normalised", "It is.", beside=("lse",)), DK, False),
        (
            Diagnosis("merge-not-normalised", "It is.", beside=("lse",)),
            msgspec.structs.replace(LSE, check="determinism"),
            False,
        ),
        (Diagnosis("merge-not-normalised", "It is."), LSE, False),
    ],
)
def test_what_the_minimal_case_shows_goes_nowhere_where_the_diagnosis_calls_it_wrong_for_another_reason(
    diagnosis, key, apart, over
):
    causes, _ = book(Company(), OUT, key, diagnosis=diagnosis)
    beside = ShownBeside(causes, {})
    beside.add(Shown(OUT, (key,), "its minimal case shows it too", sure=not over))
    company = [(found, lead) for found, lead, _ in beside.folds(over=over)]

    assert causes.apart(key, OUT) is apart
    assert company == ([] if apart or over else [(key, OUT)])


@pytest.mark.parametrize(
    ("key", "failed", "goes"),
    [
        (msgspec.structs.replace(DK, output="dq"), 3, True),
        (msgspec.structs.replace(DK, output="dq"), 0, False),
        (TOUCHED, 3, False),
    ],
)
def test_wrong_values_that_nobody_had_time_to_explain_are_one_finding_beside_those_that_were(key, failed, goes):
    company, other = Company(), key
    seen(company, wrong(OUT, 2.0), wrong(DK, math.inf, "conditional"), wrong(other, math.inf, "conditional"))
    for alone in (DK, other):  # each was right where the other one was wrong
        company_seen.seen(company, "fv1", alone, outputs=("dk", "dq"), times=9)
    causes, _ = book(company, OUT, DK, other, diagnosis=ROUNDS, failed=failed)
    causes.explained(OUT)

    together = [{found, lead} for found, lead, _ in causes.remaining.folds()]
    assert ({DK, other} in together) is goes
