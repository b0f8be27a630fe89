"""A number that the code of a kernel holds is the same on every case: a claim with one is refuted by a case that needs another."""

import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.records import Record, of_one_way, settled
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain, planted

CASES = [
    parse_case(f"fv1 seq_q={n} seq_k={n} dim_qk=8 dim_v=8 dtype=fp32 causal=top-left seed={n} backward=no")
    for n in (20, 24)
]
EMPTY = parse_case("fv1 seq_q=2 seq_k=3 dim_qk=8 dim_v=8 dtype=fp32 klen=0 backward=no")
EMPTY_NAN = planted(output=lambda s, o, z, v, lse: torch.full_like(o, math.nan))
"""Rows that see no key are NaN."""


def claim(name):
    return Claim(next(semantics for semantics in SEMANTICS if semantics.name == name))


def by(keys):
    return planted(causal=lambda s, i, j: j <= i + keys(s))


class ByCase(Plain):
    """Four keys more on the first case, two on the second."""

    def see(self, problem):
        self.keys_more = 4 if problem.case.seq_q == 20 else 2
        return super().see(problem)

    def causal(self, i, j):
        return j <= i + self.keys_more


@pytest.mark.parametrize(
    ("subject", "last"), [(by(lambda s: 4), Answer.CLEAR), (ByCase(), Answer.OTHERWISE)], ids=["one way", "two ways"]
)
def test_a_claim_keeps_to_the_way_of_its_first_case(subject, last):
    found = claim("causal-several-keys-more")

    answers = [found.answer(look(subject, case)) for case in CASES]

    assert answers == [Answer.CLEAR, last]
    assert found.detail == "by 4"


def test_a_right_case_refutes_a_way_that_would_be_wrong_there():
    found = claim("causal-several-keys-more")

    assert found.answer(look(by(lambda s: 4), CASES[0])) is Answer.CLEAR
    assert found.answer(look(Plain(), CASES[1])) is Answer.RIGHT


def test_a_number_that_no_case_determines_is_undetermined():
    found = claim("maximum-from-a-number")

    assert found.answer(look(EMPTY_NAN, EMPTY)) is not Answer.OTHERWISE
    assert found.undetermined


def test_an_explanation_without_a_number_is_preferred_to_a_number_that_no_case_determines():
    scene = look(EMPTY_NAN, EMPTY)
    records = [Record(claim(name)) for name in ("maximum-from-a-number", "empty-rows-nan")]
    for record in records:
        record.add(scene)

    assert [record.claim.semantics.name for record in settled(records)] == ["empty-rows-nan"]
    assert settled(records[:1]) == records[:1]


class MovedByCase(Plain):
    """The diagonal and the window are moved twice, once as declared, or not at all, by the number of rows."""

    def shift(self, problem, queries, keys):
        return {6: 2, 7: 1, 8: 0}[problem.case.seq_q] * (keys - queries)


MOVED = [
    parse_case(
        f"fv1 seq_q={n} seq_k=40 dim_qk=8 dim_v=8 dtype=fp32 causal=bottom-right window=9,0 seed={n} backward=no"
    )
    for n in (6, 7, 8)
]


@pytest.mark.parametrize(("cases", "refuted"), [(MOVED[:1], None), (MOVED[:2], False), (MOVED, True)])
def test_a_right_case_agrees_with_a_part_of_what_is_wrong_and_refutes_the_whole(cases, refuted):
    trials, found = Trials(MovedByCase(), 300), claim("diagonal-shift-twice")
    for case in cases:
        scene = trials.scene(case)
        if case is not MOVED[1]:
            assert scene.failures
    assert found.answer(trials.scenes[MOVED[0]]) is Answer.CLEAR

    answer = of_one_way(trials, found)

    assert (None if answer is None else answer[1]) == refuted
