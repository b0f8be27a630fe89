"""Lengths beyond those of a profile: who meets them, and how often."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashverify.campaign.worker import search
from flashverify.case import Supports
from flashverify.case.space.strategies import cases
from flashverify.case.space.stretched import long_keys

DECODE = Supports(masks=("causal", "key_lengths", "tree"), backward=False, page_sizes=(16, 64), max_seq_q=16)


@st.composite
def _stretched(draw, per_key, supports=DECODE, parts=frozenset(), lengths=(2, 40), page=None):
    return long_keys(draw, supports, parts, lengths, per_key, page)


def _lengths(*arguments, **keywords):
    """Lengths that are drawn."""
    found = []

    @settings(max_examples=150)
    @given(pair=_stretched(*arguments, **keywords))
    def collect(pair):
        found.append(pair)

    collect()
    return set(found)


@pytest.mark.parametrize("per_key", [0, 64], ids=["no sequence", "one head"])
def test_long_keys_are_drawn_whatever_a_key_holds(per_key):
    lengths = _lengths(per_key)

    assert {rows for rows, _ in lengths} == {2}
    assert {keys > 1024 for _, keys in lengths} == {False, True}


def test_long_keys_have_two_rows_at_most_and_few_elements():
    lengths = _lengths(2**11, lengths=(9, 40))

    assert lengths > {(9, 40)}
    assert all(rows == 2 and keys <= 3072 for rows, keys in lengths - {(9, 40)})


def test_long_keys_have_few_pages():
    assert max(keys for _, keys in _lengths(64, page=1)) == 4096
    assert max(keys for _, keys in _lengths(64, page=16)) > 16_384


@pytest.mark.parametrize(
    "given",
    [
        {"parts": frozenset({"bitmap"})},
        {"parts": frozenset({"blocks"})},
        {"lengths": (0, 40)},
        {"supports": Supports(backward=False)},
        {"supports": dataclasses.replace(DECODE, seq_k=range(1, 1025))},
    ],
    ids=["bitmap", "blocks", "no rows", "no decoding", "few keys declared"],
)
def test_lengths_stay_where_long_keys_cost_too_much_or_are_not_declared(given):
    assert _lengths(64, **given) == {given.get("lengths", (2, 40))}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_decoding_subject_meets_long_keys_and_others_do_not():
    decoding, other = (search.draw(cases(supports), 200, 5) for supports in (DECODE, Supports(backward=False)))

    assert sum(c.seq_k > 1024 for c in decoding) >= 2
    assert max(c.seq_k for c in decoding) <= 32_768
    assert all(c.seq_q <= 2 for c in decoding if c.seq_k > 1024)
    assert max(c.seq_k for c in other) < 300
