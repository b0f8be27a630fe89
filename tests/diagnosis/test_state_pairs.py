"""Pairs of cases that are called one after the other."""

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis import diagnose as diagnosing
from flashverify.diagnosis.state.pairs import pairs
from flashverify.judge.verdict import Status, Verdict
from tests.diagnosis.planted import Plain, planted

FORWARD = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=6 seq_k=7 dtype=fp32 seed=1 backward=no"


@pytest.mark.parametrize("number", range(7))
def test_pairs_of_other_lengths_exist_for_every_batch(number):
    found = list(pairs(Plain(), parse_case(f"{FORWARD} klen=7,2"), "lengths", number))

    assert {pair.earlier.batch for pair in found} >= {batch + 4 * number % 28 for batch in (5, 6, 7, 8)}


@pytest.mark.parametrize(("check", "share"), [("determinism", 3.0), ("accuracy", 1.0)])
def test_earlier_calls_are_asked_about_for_longer_where_the_case_is_right_by_itself(monkeypatch, check, share):
    given = []
    monkeypatch.setattr(diagnosing, "of_a_later_call", lambda _subject, _case, seconds, *_, **__: given.append(seconds))
    subject = planted(output=lambda _self, o, z, v, lse: 2 * o) if check == "accuracy" else Plain()
    case = parse_case("fv1 seq_q=2 seq_k=3 dim_qk=8 dim_v=8 dtype=fp32 backward=no")
    diagnosing.diagnose(subject, case, Verdict(check=check, status=Status.FAIL, output="o"), seconds=0.5)

    assert given == [share * 0.5]
