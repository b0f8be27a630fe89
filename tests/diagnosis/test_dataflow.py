"""A gradient that is right given the subject's own delta is wrong because that is."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.dataflow import follows_from_delta
from flashverify.subjects.interface import Forward
from tests.diagnosis.planted import Plain

CASE = parse_case(
    "fv1 seq_q=9 seq_k=11 dim_qk=8 dim_v=8 dtype=fp32 sink=yes bias=shared relative_bias=4,8 seed=3 dlse=yes"
)


class WrongDelta(Plain):
    """Delta is that of another O, in what is returned and in what is made of it."""

    another = 1.5

    def backward(self, problem, forward):
        return super().backward(problem, Forward(forward.o * self.another, forward.lse, forward.saved))


class NoDelta(WrongDelta):
    another = torch.nan


class WrongDqToo(WrongDelta):
    def dq_factor(self, problem):
        return 1.25


@pytest.mark.parametrize("output", ["dq", "dk", "dbias", "dsink", "drelative_bias"])
@pytest.mark.parametrize("subject", [WrongDelta, NoDelta])
def test_what_is_made_of_a_wrong_delta_follows_from_it(subject, output):
    assert follows_from_delta(subject(), CASE, output)


def test_a_defect_of_dq_does_not_follow_from_a_wrong_delta():
    assert not follows_from_delta(WrongDqToo(), CASE, "dq")
    assert follows_from_delta(WrongDqToo(), CASE, "dk")


@pytest.mark.parametrize("output", ["dv", "delta", "o"])
def test_what_is_right_or_not_made_of_delta_does_not_follow_from_it(output):
    assert not follows_from_delta(WrongDelta(), CASE, output)
    assert not follows_from_delta(Plain(), CASE, "dq")
