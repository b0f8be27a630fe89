"""One access of memory that several classes of a sanitizer complain about is one cause."""

import pytest

from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Attribute, Attributed
from flashverify.campaign.worker.attribute import attribute
from flashverify.judge.record import FindingRecord, Folded
from flashverify.judge.verdict import CaseResult, Key, Status, Verdict

STORE = "address.py:93 from forward.py:121: forward_kernel: store of o_view"
OUTSIDE = f"{STORE}[16] in program (0, 0, 0): 1 elements past the end of the tensor (8 lanes)"
TWICE = f"{STORE}[0, 1, 0, 0] in program (0, 0, 0): program (1, 0, 0) writes the element too (16 lanes)"


class Session:
    def __init__(self):
        self.toolkit, self.told, self.answers = self, {}, []

    def subject(self, spec):
        return spec

    def judge(self, spec, case, plan):
        return CaseResult(str(case), "k", "cpu", (Verdict(check="sanitizer", status=Status.PASS),))

    def emit(self, event):
        if isinstance(event, Attributed):
            self.answers.append(event.why)


def asked(message, finding, folded=()):
    """What is said at once of a double write with this message, the cause being an access outside."""
    lead = Key("k", "sanitizer", "out-of-bounds", "o_view", "fp16")
    verdict = Verdict(check="sanitizer", status=Status.FAIL, error="out-of-bounds", output="o_view", message=finding)
    cause = FindingRecord(lead, "fv1", "fv1", verdict, "cpu", "k", folded=tuple(folded))
    key = Key("k", "sanitizer", "double-write", "o_view", "fp16")
    other = Verdict(check="sanitizer", status=Status.FAIL, error="double-write", output="o_view", message=message)
    session = Session()
    attribute(session, Attribute(cause, (Sighting(key, "fv1 seq_q=3", other, (other,)),), trials=False))
    return session.answers


def test_the_same_line_and_tensor_is_the_same_access():
    assert asked(TWICE, OUTSIDE) == ["the same access of memory"]


@pytest.mark.parametrize("change", [("forward.py:121", "forward.py:122"), ("store", "load"), ("o_view", "v_view")])
def test_another_line_direction_or_tensor_is_another_access(change):
    assert asked(TWICE.replace(*change), OUTSIDE) == []


def test_an_access_that_was_folded_into_a_finding_counts_and_a_message_without_one_does_not():
    folded = Folded(Key("k", "sanitizer", "out-of-bounds", "o_view", "bf16"), "fv1", OUTSIDE, "company")

    assert asked(TWICE, "o is outside its bound", [folded]) == ["the same access of memory"]
    assert asked("o[0] is wrong", "o[0] is wrong") == []
