"""One access of memory that several classes of a sanitizer complain about is one cause."""

import msgspec
import pytest

from flashverify.campaign.causes.accesses import one_place
from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Attribute, Attributed
from flashverify.campaign.worker.attribute import attribute
from flashverify.judge.record import Confirmation, FindingRecord, Folded
from flashverify.judge.verdict import CaseResult, Key, Status, Verdict
from tests.campaign.company_seen import book

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


WRONG, READ = (
    Key("k", check, error, output, "fp32")
    for check, error, output in (
        ("accuracy", "bound", "o"),
        ("sanitizer", "out-of-bounds", "q_lengths"),
    )
)
LENGTHS = "address.py:34 from forward.py:78: forward_kernel: load of q_lengths[1] in program (0, 0, 0): 1 elements past the end"
OTHERS = "address.py:34 from forward.py:79: forward_kernel: load of k_lengths[1] in program (0, 0, 0): 1 elements past the end"
BITS = "mask.py:98 from forward.py:103: forward_kernel: load of bits[2] in program (4, 0, 0): 1 elements past the end"


def with_values(*held, why="its minimal case shows it too", found=LENGTHS):
    """Whether a finding that is no more than an access goes to one about wrong values that holds others; each needs what the other lacks."""
    causes, records = book(Company(), WRONG, READ)
    folded = tuple(
        Folded(msgspec.structs.replace(READ, output=f"x{number}"), "fv1", message, why)
        for number, message in enumerate(held)
    )
    verdict = msgspec.structs.replace(records[READ].verdict, message=found)
    for key, case, changes in (
        (WRONG, "fv1 dtype=fp32 klen=1", {"folded": folded}),
        (READ, "fv1 dtype=fp32 packed=0,1/0,1", {"verdict": verdict}),
    ):
        causes.explained(key)
        records[key] = msgspec.structs.replace(records[key], case=case, confirmation=Confirmation(3, 3), **changes)
    if why == COMPANY:
        causes._companions.kept.update(each.key for each in folded)
    return [key for key, *_ in causes.remaining.folds()] == [READ]


COMPANY = "seen on 1 case, never without it; nothing tells it apart"


def test_an_access_goes_to_wrong_values_with_another_access_of_that_line_in_that_kernel():
    assert with_values(OTHERS)
    assert not with_values()
    assert not with_values(OTHERS, why=COMPANY), "nothing but company says whose that is"
    assert not with_values(OTHERS.replace("forward", "dkdv")), "another kernel"


def test_an_access_of_another_line_goes_there_only_where_the_program_is_where_it_should_not_be():
    assert not with_values(OTHERS, found=BITS)
    assert with_values(OTHERS, LENGTHS, found=BITS)


@pytest.mark.parametrize(
    ("begun", "goes"),
    [
        ("address.py:34 from forward.py:78: forward_kernel", True),
        ("address.py:34 from forward.py:79: forward_kernel", False),
        ("address.py:34 from forward.py:78: dq_kernel", False),
    ],
)
def test_an_access_goes_to_values_whose_first_number_that_is_not_finite_it_loads(begun, goes):
    lost = Key("k", "nonfinite", "nan", "o", "fp32")
    begin = f"o[0] is NaN where the exact value is 0 (8 of 8 elements); non-finite values begin with: loaded at {begun}: load() = nan in"
    verdict, other = (Verdict(check="any", status=Status.FAIL, message=message) for message in (begin, LENGTHS))
    lead, found = (FindingRecord(key, "fv1", "fv1", said, "cpu", "k") for key, said in ((lost, verdict), (READ, other)))

    assert one_place(found, lead) is goes
    wrong = msgspec.structs.replace(lead, key=WRONG)
    assert not one_place(found, wrong), "a number that is not finite is no more than beside it"
