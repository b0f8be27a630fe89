"""Draws of dropout at a number that grows from call to call are said to be that."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.state.advancing import advancing_draws
from flashverify.diagnosis.state.suspecting import of_a_later_call
from flashverify_oracles import dropout_keep
from tests.diagnosis.planted import Plain

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 dropout=0.3"


class Counting(Plain):
    """Each forward draws at a seed and an offset that are further from the declared ones."""

    def __init__(self, step, start=1, kind="offset"):
        self.step, self.number, self.kind = step, start, kind

    def kept(self, problem, keep):
        case = problem.case
        drawn = {"seed": problem.dropout_seed, "offset": problem.dropout_offset}
        drawn[self.kind] += self.number
        self.number += self.step
        row, key = (torch.arange(size).expand(case.batch, -1) for size in (case.seq_q, case.seq_k))
        sequence = torch.arange(case.batch)[:, None].expand(case.batch, case.seq_q)
        given = {"p": case.dropout, "heads": case.heads_q, "sequence": sequence, "row": row, "key": key}
        return dropout_keep(**drawn, **given).double()


def said(subject):
    return advancing_draws(subject, parse_case(CASE), Clock().end(600))


@pytest.mark.parametrize(
    ("kind", "words"), [("offset", "an offset that is 3 higher"), ("seed", "a seed that is 3 higher")]
)
def test_what_grows_is_said(kind, words):
    found = said(Counting(3, start=40, kind=kind))
    assert found is not None
    assert f"in O, dQ, dK and dV at {words} in every call" in found.sentence


def test_launches_that_count_apart_are_said():
    class OfLaunches(Counting):
        """The backward draws again, at the next number."""

        def backward(self, problem, forward):
            *saved, keep, group = forward.saved
            again = self.kept(problem, keep) / (1 - problem.case.dropout)
            return super().backward(problem, dataclasses.replace(forward, saved=(*saved, again, group)))

    found = said(OfLaunches(1))
    assert found is not None
    assert "an offset that is 2 higher in every call" in found.sentence
    assert "launches are counted" in found.sentence


@pytest.mark.parametrize("subject", [Plain(), Counting(0)], ids=["right", "another number, always the same"])
def test_nothing_is_said_of_draws_that_stay(subject):
    assert said(subject) is None


@pytest.mark.parametrize("afresh", [True, False])
def test_launches_that_are_counted_are_said_though_a_first_call_fails_too(afresh):
    found = of_a_later_call(Counting(3), parse_case(CASE), 600, Clock(), afresh=lambda: afresh)

    assert found is not None
    assert "an offset that is 3 higher in every call" in found.sentence
