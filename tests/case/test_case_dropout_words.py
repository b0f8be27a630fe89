"""Probabilities of dropout on the edge of the word of a pair."""

import pytest
import torch

import flashverify_oracles as oracles
from flashverify.campaign.worker import search
from flashverify.case import parse_case
from flashverify.case.space.strategies import cases
from flashverify.case.supports import Supports
from flashverify.case.values.dropout_words import deciding_word, dropout_key, philox4x32


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, words):
    assert words == philox4x32(counter, key)


def kept(case, p):
    """`[batch, heads, rows, keys]`."""
    seed, offset = dropout_key(case.values.seed)
    row, key = (torch.arange(n).expand(case.batch, -1) for n in (case.seq_q, case.seq_k))
    sequence = torch.arange(case.batch)[:, None].expand(-1, case.seq_q)
    return oracles.dropout_keep(seed=seed, offset=offset, p=p, heads=case.heads_q, sequence=sequence, row=row, key=key)


@pytest.mark.parametrize("seed", [0, 1, 200])
@pytest.mark.parametrize("pair", [(0, 0, 0, 0), (1, 2, 6, 9), (1, 1, 3, 2), (0, 2, 5, 7)])
def test_one_step_of_the_probability_drops_that_pair_alone(seed, pair):
    case = parse_case(f"fv1 batch=2 heads_q=3 seq_q=7 seq_k=10 seed={seed}")
    word = deciding_word(case, *pair)
    before, after = (kept(case, (word + step) / 2**32) for step in (0, 1))

    assert [list(pair)] == (before & ~after).nonzero().tolist()
    assert not (after & ~before).any()


@pytest.mark.slow
@pytest.mark.thorough
def test_some_probabilities_are_drawn_on_an_edge_of_a_pair():
    drawn = search.draw(cases(Supports(dropout=True, masks=("key_lengths", "query_lengths"))), 300, 0)
    edges = [c for c in drawn if c.dropout not in (0.0, 0.1, 0.5, 0.9)]
    steps = [(kept(c, c.dropout - 2.0**-32) ^ kept(c, c.dropout + 2.0**-32)).sum() for c in edges]

    assert len(edges) >= 10
    assert min(steps) >= 1
    assert all(0.02 < c.dropout < 0.98 for c in edges)
    sides = {bool((kept(c, c.dropout) ^ kept(c, c.dropout + 2.0**-32)).any()) for c in edges}
    assert {False, True} == sides
