"""The buckets of a relative bias, against T5's published rule and against the oracles'; its text, values and refusals."""

import itertools
import math

import numpy as np
import pytest
import torch

from flashverify.case import Logits, format_case, parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.case.modifiers.modifier import FAR
from flashverify.case.modifiers.relative_bias import (
    RELATIVE_BIAS,
    RelativeBias,
    bucket_of_distance,
    relative_bias_values,
)
from flashverify.errors import UsageError
from flashverify_oracles import t5_buckets

T5_BEHIND = (
    *range(16), 16, 16, 16, 17, 17, 18, 18, 18, 19, 19, 19, 20, 20, 20, 20, 21, 21, 21, 21, 22, 22, 22, 22, 22, 23, 23, 23, 23,
    23, 23, 24, 24, 24, 24, 24, 24, 25, 25, 25, 25, 25, 25, 25, 26, 26, 26, 26, 26, 26, 26, 26, 27, 27, 27, 27, 27, 27, 27, 27, 27,
    27, 28, 28, 28, 28, 28, 28, 28, 28, 28, 28, 29, 29, 29, 29, 29, 29, 29, 29, 29, 29, 29, 29, 30, 30, 30, 30, 30, 30, 30, 30, 30,
    30, 30, 30, 30, 30, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31,
)  # fmt: skip
"""Distances 0 to 128 of a decoder, 32 buckets up to 128."""
T5_BOTH = (*range(8), 8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10, 11, 11, 11, 11, 11, 11, 11, 11, 11)
"""Distances 0 to 31 of an encoder, a side of 32 buckets up to 128."""

KINDS = [
    RelativeBias(*x)
    for x in itertools.product((2, 3, 6, 17, 32, 64, 320), (2, 5, 20, 128, 800), (False, True))
    if (not x[2] or (x[0] % 2 == 0 and x[0] >= 4)) and x[1] > (x[0] // 2 if x[2] else x[0]) // 2
]


def test_the_buckets_of_t5():
    decoder = bucket_of_distance(RelativeBias(32, 128))
    assert decoder[128::-1] == T5_BEHIND
    assert set(decoder[129:]) == {0}
    encoder = bucket_of_distance(RelativeBias(32, 128, bidirectional=True))
    assert encoder[128 : 128 - 32 : -1] == T5_BOTH
    assert encoder[129 : 128 + 32] == tuple(16 + bucket for bucket in T5_BOTH[1:])
    assert (encoder[0], encoder[-1]) == (15, 31)


@pytest.mark.parametrize("kind", KINDS, ids=RELATIVE_BIAS.format)
def test_the_buckets_are_those_of_the_oracles_and_of_the_formula(kind):
    found = bucket_of_distance(kind)
    assert list(found) == t5_buckets(kind.buckets, kind.max_distance, kind.bidirectional).tolist()
    side = kind.buckets // 2 if kind.bidirectional else kind.buckets
    own = side // 2
    for distance in range(own, kind.max_distance):
        exact = math.log(distance / own) / math.log(kind.max_distance / own) * (side - own)
        if abs(exact - round(exact)) > 1e-9:  # where the logarithms of floats decide nothing
            assert found[kind.max_distance - distance] == own + min(int(exact), side - own - 1)


@pytest.mark.parametrize("text", ["32,128", "8,20,both", "2,2"])
def test_a_text_comes_back(text):
    case = parse_case(f"fv1 seq_q=5 relative_bias={text}")
    assert f"relative_bias={text}" in format_case(case)
    assert parse_case(format_case(case)) == case


@pytest.mark.parametrize(
    "text", ["8", "8,20,yes", "1,20", "7,20,both", "2,9,both", "32,16", "8,4", "8,70000", "2000,9999", "a,b"]
)
def test_what_is_no_relative_bias_is_refused(text):
    with pytest.raises(UsageError, match=r"relative_bias|buckets|max_distance"):
        parse_case(f"fv1 relative_bias={text}")


@pytest.mark.parametrize("value", [(8, 20), [8, 20, True], (8.0, 20, True), (8, 20, 1), 8])
def test_a_value_of_another_kind_is_refused(value):
    with pytest.raises(
        UsageError, match=r"relative_bias=.* is not accepted: None or \(buckets, max_distance, bidirectional\)"
    ):
        Logits(relative_bias=value)
    assert Logits(relative_bias=(8, 20, True)) == Logits(relative_bias=RelativeBias(8, 20, bidirectional=True))


def test_values_differ_in_kind_by_the_seed():
    def table(seed, more=""):
        return relative_bias_values(parse_case(f"fv1 heads_q=40 seq_q=5 relative_bias=32,128 seed={seed} {more}"))

    assert all(0.9 < table(seed).std() < 1.1 for seed in range(4))
    assert not table(4).any()
    assert not table(0, "regime=zeros").any()
    assert 0.2 < (table(5) == FAR).mean() < 0.3
    assert 6 < table(6).std() < 10
    assert (np.abs(table(7) - FAR) <= 16).all()
    assert set(np.unique(table(7, "regime=integers"))) == {-2, -1, 0, 1, 2}


def test_tensors_of_a_case():
    problem, _ = materialize(
        parse_case(
            "fv1 heads_q=4 heads_kv=2 seq_q=5 relative_bias=8,20,both strided=yes edits=relative_bias:3,7,0,0:-5.5"
        )
    )
    assert (problem.relative_bias.shape, problem.relative_bias.dtype) == ((4, 8), torch.float32)
    assert problem.relative_bias.stride() == (16, 2)
    assert problem.relative_bias[3, 7] == -5.5
    assert problem.distance_buckets.tolist() == t5_buckets(8, 20, bidirectional=True).tolist()
    assert problem.distance_buckets.dtype == torch.int32
