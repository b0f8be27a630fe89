"""Strategies that are made once for the same values, and never for equal ones that are others."""

import math

import pytest
from hypothesis import Phase, given, settings

from flashverify.case.space.sampling import one_in, sampled_from


def drawn(strategy):
    found = []

    @settings(max_examples=30, phases=[Phase.generate], database=None)
    @given(strategy)
    def body(value):
        found.append(value)

    body()
    return found


def test_the_same_values_give_the_same_strategy():
    assert sampled_from((1, "a")) is sampled_from([1, "a"])
    assert one_in(3) is one_in(3)
    assert sampled_from((1, 2)) is not sampled_from((2, 1))


@pytest.mark.parametrize(
    "values", [(0, 1), (False, True), (0.0, 1.0), (-0.0, 1.0), ((0, 1),), ((False, True),)], ids=str
)
def test_values_that_are_equal_and_others_are_told_apart(values):
    for value in drawn(sampled_from(values)):
        assert repr(value) in map(repr, values)


def test_what_has_no_hash_and_nan_are_drawn_too():
    assert {str(x) for x in drawn(sampled_from([[1], [2]]))} == {"[1]", "[2]"}
    assert any(math.isnan(x) for x in drawn(sampled_from((math.nan, 1.0))))
