"""Every class of error has a planted defect that turns it red."""

import dataclasses
import math

import pytest
import torch

from flashverify.judge.compare import compare_output
from flashverify.judge.verdict import from_hex
from flashverify.numerics import OutputBound

NO = torch.zeros(4, dtype=torch.bool)
FIRST = torch.tensor([True, False, False, False])
EXPECTED = torch.tensor([1.0, -2.0, 3.0, 0.0], dtype=torch.float64)


def bound(value=0.5, *, exempt=NO, may=NO, flip=NO, must=NO, uninformative=NO):
    values = torch.full((4,), value, dtype=torch.float64).masked_fill(exempt, math.inf)
    zeros = torch.zeros(4, dtype=torch.float64)
    return OutputBound(
        bound=values, self_error=zeros, may_overflow=may, may_flip=flip, must_overflow=must, uninformative=uninformative
    )


def compare(got, b=None, **masks):
    return compare_output("o", torch.tensor(got, dtype=torch.float32), EXPECTED, b or bound(), **masks)


def errors(comparison):
    return [verdict.error for verdict in comparison.verdicts]


def test_exact_values_pass_with_ratio_zero():
    comparison = compare([1.0, -2.0, 3.0, 0.0])

    assert errors(comparison) == []
    assert from_hex(comparison.stats.worst) == 0.0


def test_a_ratio_of_one_passes_and_beyond_it_fails():
    assert errors(compare([1.5, -2.0, 3.0, 0.0])) == []

    comparison = compare([1.0, -2.0, 3.75, 0.25])

    assert errors(comparison) == ["bound"]
    assert comparison.verdicts[0].index == (2,)
    assert from_hex(comparison.verdicts[0].ratio) == 1.5
    assert comparison.stats.index == (2,)


def test_any_error_exceeds_a_bound_of_zero():
    assert errors(compare([1.0, -2.0, 3.0, 1e-30], bound(0.0))) == ["bound"]


@pytest.mark.parametrize(("value", "error"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "inf")])
def test_a_nonfinite_value_fails(value, error):
    comparison = compare([1.0, value, 3.0, 0.0])

    assert errors(comparison) == [error]
    assert comparison.verdicts[0].check == "nonfinite"


def test_an_allowed_overflow_must_have_the_right_sign():
    assert errors(compare([math.inf, -2.0, 3.0, 0.0], bound(may=FIRST))) == []
    assert errors(compare([-math.inf, -2.0, 3.0, 0.0], bound(may=FIRST))) == ["inf"]


def test_an_overflow_of_either_sign_is_allowed_where_the_bound_reaches_both_ends():
    assert errors(compare([-math.inf, -2.0, 3.0, 0.0], bound(may=FIRST, flip=FIRST))) == []


def test_a_required_overflow_must_happen():
    assert errors(compare([math.inf, -2.0, 3.0, 0.0], bound(may=FIRST, must=FIRST))) == []
    assert errors(compare([1.0, -2.0, 3.0, 0.0], bound(may=FIRST, must=FIRST))) == ["finite"]


@pytest.mark.parametrize("mask", ["taint", "undefined", "exempt"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e9])
def test_nothing_is_asked_of_free_elements_and_they_are_counted(mask, value):
    got = [value, -2.0, 3.0, 0.0]
    comparison = compare(got, bound(exempt=FIRST)) if mask == "exempt" else compare(got, **{mask: FIRST})

    assert errors(comparison) == []
    assert comparison.stats.exempt == 1


def test_a_pinned_element_must_be_exact():
    pinned = {"pinned": FIRST, "pinned_value": -math.inf}

    assert errors(compare([-math.inf, -2.0, 3.0, 0.0], **pinned)) == []
    for wrong in (math.inf, math.nan, 1.0):
        comparison = compare([wrong, -2.0, 3.0, 0.0], **pinned)
        assert errors(comparison) == ["empty-row"]
        assert comparison.verdicts[0].index == (0,)


def test_uninformative_elements_are_counted():
    assert compare([1.0, -2.0, 3.0, 0.0], bound(uninformative=FIRST)).stats.uninformative == 1


def test_percentiles_are_taken_over_judged_elements():
    comparison = compare([1.5, -2.25, 3.125, 0.0], bound(exempt=FIRST))

    assert from_hex(comparison.stats.worst) == 0.5
    assert from_hex(comparison.stats.median) == 0.25


def test_an_empty_output_is_compared():
    empty = torch.zeros(0, dtype=torch.float64)
    none = torch.zeros(0, dtype=torch.bool)
    b = OutputBound(
        bound=empty, self_error=empty, may_overflow=none, may_flip=none, must_overflow=none, uninformative=none
    )

    assert compare_output("o", empty, empty, b).stats.elements == 0


def test_the_mean_signed_ratio_tells_the_direction_of_the_errors():
    assert from_hex(compare([1.25, -1.75, 3.25, 0.25]).stats.signed) == 0.5
    assert from_hex(compare([1.25, -2.25, 3.0, 0.0]).stats.signed) == 0.0
    assert from_hex(compare([9.0, -2.0, 3.0, 0.0]).stats.signed) == 0.25, "one element counts at most as its bound"
    assert compare([1.0, -2.0, 3.0, 0.0], bound(exempt=~NO)).stats.signed == ""


def test_telling_elements_are_those_at_which_zeros_would_fail():
    assert compare([1.0, -2.0, 3.0, 0.0]).stats.telling == 3
    assert compare([1.0, -2.0, 3.0, 0.0], bound(2.0)).stats.telling == 1
    assert compare([1.0, -2.0, 3.0, 0.0], bound(3.0)).stats.telling == 0
    assert compare([1.0, -2.0, 3.0, 0.0], pinned=FIRST, pinned_value=1.0).stats.telling == 2


@pytest.mark.parametrize("value", [9.0, math.nan, math.inf])
def test_a_conditional_value_is_labelled(value):
    (verdict,) = compare([1.0, value, 3.0, 0.0], mode="conditional").verdicts

    assert "where the exact value given the kernel's own O and LSE is -2" in verdict.message


def test_a_strict_failure_names_the_prediction_and_the_exact_value():
    asked = []

    def exact():
        asked.append(1)
        return EXPECTED + 0.25

    (verdict,) = compare([1.0, 9.0, 3.0, 0.0], mode="strict", exact=exact).verdicts
    assert verdict.message.startswith(
        "o[1] is 9 where a correct kernel of this form returns -2 (the exact value is -1.75): error 11, bound 0.5"
    )
    assert compare([1.0, -2.0, 3.0, 0.0], mode="strict", exact=exact).verdicts == ()
    assert len(asked) == 1, "asked for a failure alone"


def test_an_end_to_end_value_is_the_exact_one():
    (verdict,) = compare([1.0, 9.0, 3.0, 0.0]).verdicts

    assert verdict.message.startswith("o[1] is 9 where the exact value is -2: error 11, bound 0.5 (1 of 4 elements")


def test_a_failure_carries_the_map_of_its_elements():
    shape = (1, 1, 2, 2)
    mine, exact = torch.tensor([1.0, -2.0, 9.0, 0.0]).reshape(shape), EXPECTED.reshape(shape)
    wide = bound()
    wide = dataclasses.replace(wide, **{f.name: getattr(wide, f.name).reshape(shape) for f in dataclasses.fields(wide)})

    (verdict,) = compare_output("o", mine, exact, wide).verdicts
    assert (verdict.map.down, verdict.map.cells) == ("channel", ("09", "00"))
