"""The profile `long`: lengths evenly by octave, inside the declaration and inside the work that the profile states."""

import dataclasses
from collections import Counter

import pytest

from flashverify.campaign.worker import search
from flashverify.case.space.profiles import LONGEST, out_of_reach, profile_of
from flashverify.case.space.strategies import cases
from flashverify.case.supports import Supports

PLAIN = Supports(masks=("causal", "packed"), compiles=False, empty=False)


def drawn(supports, device, count=150):
    return search.draw(cases(supports, profile=profile_of(device, "long")), count, 0)


@pytest.fixture(scope="module")
def on_gpu():
    return drawn(PLAIN, "cuda", 360)  # one in 40 has few rows over more than 8,192 keys


def test_keys_are_drawn_from_every_octave(on_gpu):
    octaves = Counter((case.seq_k - 1).bit_length() for case in on_gpu)

    assert len(octaves) >= 14
    assert sum(count for octave, count in octaves.items() if octave > 12) > len(on_gpu) // 8
    assert max(octaves.values()) <= len(on_gpu) // 4
    assert max(max(case.seq_q, case.seq_k) for case in on_gpu) > LONGEST // 2


def test_there_are_decode_prefill_and_tall_shapes(on_gpu):
    assert any(case.seq_q <= 16 and case.seq_k > 8192 for case in on_gpu)
    assert any(case.seq_q > 2048 and case.seq_k > 2048 for case in on_gpu)
    assert any(case.seq_q > 16 * case.seq_k for case in on_gpu)


def test_packed_sequences_are_very_uneven(on_gpu):
    lengths = [[rows for rows, _ in case.mask.packed.lengths() if rows] for case in on_gpu if case.mask.packed]
    several = [rows for rows in lengths if len(rows) > 2]

    assert several
    assert sum(max(rows) > 8 * min(rows) for rows in several) > len(several) // 2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_work_stays_within_the_profile(device):
    profile = profile_of(device, "long")
    for case in drawn(PLAIN, device, 40):
        pairs = case.batch * case.heads_q * case.seq_q * case.seq_k
        assert pairs * (case.dim_qk + case.dim_v) <= profile.max_work, case
        assert max(case.seq_q, case.seq_k) <= LONGEST


@pytest.mark.parametrize(
    "declared",
    [
        {"square": True},
        {"seq_multiple": 128},
        {"max_seq_q": 4},
        {"seq_k": (1024, 32_768)},
        {"rectangular_causal": False},
    ],
    ids=str,
)
def test_declared_lengths_are_kept(declared):
    supports = dataclasses.replace(PLAIN, **declared)
    found = drawn(supports, "cuda", 30)

    assert found
    assert max(case.seq_k for case in found) >= 1024
    assert all(supports.refusal(case) is None for case in found)


def test_a_tree_stays_small_behind_a_long_prefix():
    found = drawn(Supports(masks=("tree",), required_masks=("tree",), compiles=False), "cuda", 30)

    assert max(case.seq_q for case in found) <= 64
    assert max(case.seq_k for case in found) > 4096


def test_what_a_cpu_does_not_reach_is_said():
    said = out_of_reach("cpu", "long")
    reached = [case.seq_q * case.seq_k for case in drawn(PLAIN, "cpu", 40)]

    assert (
        "more than 16 rows over 65,536 keys, more than 1,024 over as many, more than 1,048,576 pairs of a head" in said
    )
    assert max(reached) <= 1_048_576
    assert out_of_reach("cuda", "long") == out_of_reach("cpu", "cpu") == out_of_reach("cpu", "") == ""
