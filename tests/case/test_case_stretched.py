"""Lengths beyond those of a profile: who meets them, and how often."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashverify.campaign.worker import search
from flashverify.case import Supports
from flashverify.case.space.strategies import cases
from flashverify.case.space.stretched import long_keys

DECODE = Supports(masks=("causal", "key_lengths", "tree"), backward=False, page_sizes=(16, 64), max_seq_q=16)


@st.composite
def _stretched(draw, per_key):
    return long_keys(draw, DECODE, frozenset(), (2, 40), per_key)


@pytest.mark.parametrize("per_key", [0, 64], ids=["no sequence", "one head"])
def test_long_keys_are_drawn_whatever_a_key_holds(per_key):
    lengths = []

    @settings(max_examples=150)
    @given(pair=_stretched(per_key))
    def collect(pair):
        lengths.append(pair)

    collect()

    assert {rows for rows, _ in lengths} == {2}
    assert {keys > 1024 for _, keys in lengths} == {False, True}


@pytest.mark.slow
def test_a_decoding_subject_meets_long_keys_and_others_do_not():
    decoding, other = (search.draw(cases(supports), 200, 5) for supports in (DECODE, Supports(backward=False)))

    assert sum(c.seq_k > 1024 for c in decoding) >= 2
    assert max(c.seq_k for c in decoding) <= 32_768
    assert all(c.seq_q <= 2 for c in decoding if c.seq_k > 1024)
    assert max(c.seq_k for c in other) < 300
