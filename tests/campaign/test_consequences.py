"""A gradient that is wrong because of what a known cause does to something else on the same case."""

import pytest

from flashverify.campaign.causes.diagnoses import UNWRITTEN
from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Attribute, Attributed
from flashverify.campaign.worker.attribute import attribute
from flashverify.judge.record import Diagnosis, FindingRecord, Folded
from flashverify.judge.verdict import Key, Status, Verdict


def key(check, error, output):
    return Key("k", check, error, output, "fp16")


OUT, DK = key("accuracy", "bound", "o"), key("accuracy", "bound", "dk")
LEFT, NAN_DK, INF_DV = key("memory", "unwritten", "dk"), key("nonfinite", "nan", "dk"), key("nonfinite", "inf", "dv")


def failing(of):
    return Verdict(check=of.check, status=Status.FAIL, error=of.error, output=of.output)


class Session:
    """What `accounts` holds by name of a diagnosis and output is what that diagnosis is said to account for."""

    def __init__(self, accounts):
        self.toolkit, self.told, self.answers, self.accounts = self, {}, [], accounts

    def subject(self, spec):
        return spec

    def attributed(self, subject, case, verdict, diagnosis):
        return self.accounts.get((diagnosis.name, verdict.output), False if diagnosis.name else None)

    def follows_from_delta(self, subject, case, output):
        return False

    def emit(self, event):
        if isinstance(event, Attributed):
            self.answers.append(event.why)


def asked(of, beside, folded, accounts, name="a"):
    """What is said at once of a failure, others failing on the same case, the cause being about O."""
    held = tuple(Folded(each, "fv1", "", "company") for each in folded)
    diagnosis = Diagnosis(name, "A.") if name else None
    cause = FindingRecord(OUT, "fv1", "fv1", failing(OUT), "cpu", "k", folded=held, diagnosis=diagnosis)
    session = Session(accounts)
    seen = Sighting(of, "fv1 seq_q=3", failing(of), tuple(map(failing, (of, *beside))))
    attribute(session, Attribute(cause, (seen,), trials=False))
    return session.answers


@pytest.mark.parametrize(
    ("beside", "folded", "accounts", "follows"),
    [
        ([LEFT], [LEFT], {(UNWRITTEN, "dk"): True}, True),
        ([LEFT], [LEFT], {(UNWRITTEN, "dk"): None}, False),  # other elements are wrong too
        ([LEFT], [], {(UNWRITTEN, "dk"): True}, False),  # the cause is not known to leave any
        ([], [LEFT], {(UNWRITTEN, "dk"): True}, False),  # all are written on this case
    ],
)
def test_elements_that_a_cause_leaves_unwritten_are_wrong_because_of_it(beside, folded, accounts, follows):
    assert asked(DK, beside, folded, accounts) == ["nobody writes these elements"] * follows


@pytest.mark.parametrize(
    ("of", "beside", "accounts", "follows"),
    [
        (NAN_DK, [INF_DV], {("a", "dv"): True}, True),
        (NAN_DK, [INF_DV], {("a", "dv"): False}, False),
        (NAN_DK, [], {("a", "dv"): True}, False),
        (DK, [INF_DV], {("a", "dv"): True}, False),
    ],
)
def test_dk_is_not_finite_where_the_weights_of_dv_are_not(of, beside, accounts, follows):
    assert asked(of, beside, [], accounts) == ["follows from weights that are not finite, as dV does"] * follows


@pytest.mark.parametrize("folded", [[INF_DV], []])
def test_so_it_is_where_a_cause_without_a_name_is_known_to_make_dv_infinite(folded):
    assert bool(asked(NAN_DK, [INF_DV], folded, {}, name="")) is bool(folded)
