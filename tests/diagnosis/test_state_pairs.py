"""Pairs of cases that are called one after the other."""

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.state.pairs import pairs
from tests.diagnosis.planted import Plain

FORWARD = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=6 seq_k=7 dtype=fp32 seed=1 backward=no"


@pytest.mark.parametrize("number", range(7))
def test_pairs_of_other_lengths_exist_for_every_batch(number):
    found = list(pairs(Plain(), parse_case(f"{FORWARD} klen=7,2"), "lengths", number))

    assert {pair.earlier.batch for pair in found} >= {batch + 4 * number % 28 for batch in (5, 6, 7, 8)}
