"""What the minimal case of a finding shows beside it is its work; what another case shows beside it may be that of a second cause."""

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.shown import ShownBeside
from flashverify.campaign.protocol import Profile, Shown
from flashverify.campaign.worker.profile import profile
from flashverify.case.text import format_case
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord
from flashverify.judge.verdict import CaseResult, Key
from tests.campaign.company_seen import DK, OUT, TOUCHED, book, failing, seen

LSE = Key("k", "accuracy", "bound", "lse", "fp16")


def shown_beside(company, *, sure=False):
    """A cause whose case shows a bucket that waits, and the book of both."""
    causes, records = book(company, OUT, TOUCHED)
    records[OUT] = msgspec.structs.replace(records[OUT], not_minimal="the time was over")
    beside = ShownBeside(causes, {})
    beside.add(Shown(OUT, (TOUCHED,), "shown", sure))
    return beside, causes


def test_what_a_case_that_is_not_minimal_shows_waits_for_the_end_or_for_company_that_chance_hardly_explains():
    company = Company()
    seen(company, "fv1", OUT, TOUCHED)
    seen(company, "fv1", OUT, times=3)
    seen(company, "fv1", times=3)
    beside, causes = shown_beside(company)

    assert list(shown_beside(company, sure=True)[0].folds()) == [(TOUCHED, OUT, "shown")]
    assert list(beside.folds()) == []
    assert causes.waiting() == []
    assert causes.question("k", trials=True) is None, "it is parked"
    assert list(beside.folds(over=True)) == [(TOUCHED, OUT, "shown")]
    seen(company, "fv1", OUT, TOUCHED, times=9)
    seen(company, "fv1", times=40)
    assert list(beside.folds()) == [(TOUCHED, OUT, "shown")]


def test_what_was_seen_alone_is_parked_no_longer():
    company = Company()
    seen(company, "fv1", OUT, TOUCHED)
    beside, causes = shown_beside(company)
    list(beside.folds())
    seen(company, "fv1", TOUCHED)

    assert list(beside.folds(over=True)) == []
    assert [record.key for record in causes.waiting()] == [TOUCHED]


@pytest.mark.parametrize(
    ("bucket", "changes", "folded"),
    [
        (LSE, {}, True),
        (LSE, {"diagnosis": Diagnosis("scale-missing")}, True),
        (DK, {}, True),
        (DK, {"diagnosis": Diagnosis("scale-missing")}, False),
        (TOUCHED, {}, False),
        (LSE, {"not_minimal": "the time was over"}, False),
        (LSE, {"confirmation": Confirmation(3, 0)}, False),
    ],
    ids=["lse", "lse beside a name", "gradient", "a name accounts for gradients", "memory", "not minimal", "unsure"],
)
def test_values_that_a_minimal_case_shows_itself_go_to_its_finding_when_the_time_is_over(bucket, changes, folded):
    causes, records = book(Company(), OUT, bucket)
    records[OUT] = msgspec.structs.replace(records[OUT], **changes)
    beside = ShownBeside(causes, {})
    beside.minimal(records[OUT], (OUT, bucket))

    assert list(beside.folds()) == [], "there may be time to look closer"
    assert list(beside.folds(over=True)) == [(bucket, OUT, "its minimal case shows it too")] * folded


class Minimal:
    """A session whose subject fails on O for 9 keys or more, on dK with a backward, and touches memory for two tiles of rows.

    In bf16 it is refused, or O is right.
    """

    def __init__(self, refused):
        self.shown, self.sure, self.toolkit, self.refused = {}, {}, self, refused

    def subject(self, spec):
        return spec

    def refusal(self, subject, case):
        return "bf16" if self.refused and case.dtype == "bf16" else None

    def attributed(self, subject, case, verdict, diagnosis):
        return verdict.output != "dk"

    def emit(self, event):
        for key in getattr(event, "buckets", ()):
            self.shown[key.output, key.check, key.dtype] = event.why
            self.sure[key.output, key.check, key.dtype] = event.sure

    def judge(self, spec, case, plan):
        assert not (self.refused and case.dtype == "bf16")
        keys = (
            [OUT] * (case.seq_k >= 9 and case.dtype != "bf16")
            + [DK] * case.grad.backward
            + [TOUCHED] * (case.seq_q > 100)
        )
        return CaseResult(format_case(case), "k", "cpu", tuple(map(failing, keys)))


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("name", ["", "scale-missing"])
def test_the_minimal_case_of_a_finding_shows_what_else_is_its_work(name, refused):
    session = Minimal(refused)
    finding = FindingRecord(OUT, "fv1 seq_k=9 backward=no", "fv1", failing(OUT), "cpu", "k", diagnosis=Diagnosis(name))
    profile(session, Profile(finding))

    gradients = {("dk", "accuracy", dtype) for dtype in ("fp16", "fp32")}
    assert session.shown["o", "memory", "fp32"] == "its minimal case in fp32 with more rows and keys shows it too"
    assert ("o", "memory", "fp16") in session.shown
    assert ("o", "accuracy", "fp32") in session.shown
    assert not [key for key in session.shown if key[2] == "bf16"], "the finding does not show there"
    assert (gradients <= session.shown.keys()) is (not name), "where a diagnosis has a say, it decides"
    assert all(session.sure.values())


def test_a_case_that_is_not_minimal_may_show_another_cause_unless_it_is_the_same_output_or_the_values_say_so():
    plain, told = Minimal(refused=True), Minimal(refused=True)
    given = {"not_minimal": "the time was over"}
    finding = FindingRecord(OUT, "fv1 seq_k=9 backward=no", "fv1", failing(OUT), "cpu", "k", **given)
    profile(plain, Profile(finding))
    profile(told, Profile(msgspec.structs.replace(finding, diagnosis=Diagnosis("scale-missing"))))

    assert plain.sure["o", "accuracy", "fp32"]
    assert not plain.sure["o", "memory", "fp32"]
    assert not plain.sure["dk", "accuracy", "fp16"]
    assert ("dk", "accuracy", "fp16") not in told.sure
    assert not told.sure["o", "memory", "fp32"]


def test_wrong_values_of_a_larger_case_are_not_the_work_of_a_finding_about_memory():
    session = Minimal(refused=True)
    finding = FindingRecord(TOUCHED, "fv1 seq_q=101 seq_k=2 backward=no", "fv1", failing(TOUCHED), "cpu", "k")
    profile(session, Profile(finding))

    assert ("dk", "accuracy", "fp16") in session.shown, "with a backward, at the same size"
    assert ("o", "accuracy", "fp16") not in session.shown, "O needs nine keys, and memory does not"
