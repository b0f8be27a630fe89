"""Which positions the ranks of a ring have, and which of them see each other, against the whole sequence pair by pair."""

import itertools

import pytest
import torch
import torch.distributed as dist

from flashverify_kernels import Options
from flashverify_kernels.ring import SHARDINGS, Ring, pieces_of, put, ring_forward, take
from flashverify_kernels.ring.sharding import band_of, lengths_within

LENGTHS = (0, 1, 3, 8, 13)


def positions(pieces):
    return [piece.start + n * piece.step for piece in pieces for n in range(piece.size)]


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_every_position_is_one_ranks(sharding):
    for length, ranks in itertools.product(LENGTHS, (1, 2, 3, 4)):
        found = [positions(pieces_of(length, ranks, rank, sharding)) for rank in range(ranks)]

        assert sorted(itertools.chain(*found)) == list(range(length))
        assert max(map(len, found)) - min(map(len, found)) <= (2 if sharding == "zigzag" else 1)


def test_stripes_and_zigzag_give_every_rank_as_many_causal_pairs_as_any_other():
    def pairs(sharding):
        return [sum(p + 1 for p in positions(pieces_of(64, 4, rank, sharding))) for rank in range(4)]

    assert max(pairs("zigzag")) == min(pairs("zigzag"))
    assert max(pairs("striped")) < 1.1 * min(pairs("striped"))
    assert max(pairs("contiguous")) > 5 * min(pairs("contiguous"))


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_what_is_taken_apart_is_put_together(sharding):
    whole, found = torch.arange(2 * 13 * 3.0).view(1, 2, 13, 3), torch.full((1, 2, 13, 3), -1.0)
    for rank in range(3):
        pieces = pieces_of(13, 3, rank, sharding)
        put(found, take(whole, pieces, 2), pieces, 2)

    assert torch.equal(found, whole)


def seen(rows, keys, low, high):
    """The pairs that a band sees, in the numbers of the pieces."""
    band = band_of(rows, keys, low, high)
    if band is None:
        return set()
    left, right = (float("inf") if side is None else side for side in band.window)
    assert left >= 0
    assert right >= 0
    return {
        (i, j)
        for i in range(band.rows, rows.size)
        for j in range(band.keys, keys.size)
        if -left <= (j - band.keys) - (i - band.rows) <= right
    }


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_a_band_of_the_whole_sequence_is_cut_to_every_pair_of_pieces(sharding):
    bands = [(None, None), (None, 0), (None, 5), (None, -4), (-2, 0), (-3, 4), (3, 6), (-6, -2)]
    for sq, sk, ranks, (low, high) in itertools.product((5, 13), (4, 13), (2, 3), bands):
        for here, there in itertools.product(range(ranks), repeat=2):
            for rows, keys in itertools.product(
                pieces_of(sq, ranks, here, sharding), pieces_of(sk, ranks, there, sharding)
            ):
                expected = {
                    (i, j)
                    for (i, p), (j, t) in itertools.product(enumerate(positions([rows])), enumerate(positions([keys])))
                    if (low is None or low <= t - p) and (high is None or t - p <= high)
                }
                assert seen(rows, keys, low, high) == expected


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_lengths_of_the_whole_sequence_are_cut_to_a_piece(sharding):
    lengths = torch.arange(14, dtype=torch.int32)
    for rank, first in itertools.product(range(3), (0, 1)):
        for piece in pieces_of(13, 3, rank, sharding):
            inside = positions([piece])[first:]
            if first <= piece.size:
                found = lengths_within(lengths, piece, first)
                assert found.tolist() == [sum(p < length for p in inside) for length in range(14)]


def test_an_unknown_sharding_is_an_error():
    with pytest.raises(ValueError, match="sharding: expected one of 'contiguous', 'striped', 'zigzag', got 'spiral'"):
        pieces_of(8, 2, 0, "spiral")


@pytest.mark.parametrize("causal", ["bottom_right", True])
def test_a_causality_that_is_none_is_refused(causal, monkeypatch):
    monkeypatch.setattr(dist, "get_world_size", lambda _: 1)
    monkeypatch.setattr(dist, "get_rank", lambda _: 0)
    q = torch.zeros(1, 1, 4, 8)

    with pytest.raises(ValueError, match="causal: expected one of None, 'top-left', 'bottom-right', got"):
        ring_forward(q, q, q, Ring(queries=4, keys=4), Options(causal=causal))
