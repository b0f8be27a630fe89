"""The interval of a common fraction: around 0 for errors without a direction, away from it for those with one."""

import math

import pytest
import torch

from flashverify.checks.statistics.evidence import Errors
from flashverify.training.fractions import ALPHA, Fraction, limit_at


def errors(generator, fraction, directed=0.0):
    """Errors of 64 groups of 16 elements near 1, spread evenly over a spacing, and a fraction of the value."""
    value = 1 + torch.rand(64, 1, 16, generator=generator, dtype=torch.float64)
    noise = (torch.rand(value.shape, generator=generator, dtype=torch.float64) - 0.5) * 2**-7
    weight = torch.full_like(value, 2.0**16)
    return Errors(value=value, error=noise + fraction * value, directed=torch.full_like(value, directed), weight=weight)


def after(steps, fraction, directed=0.0):
    generator, found = torch.Generator().manual_seed(1), Fraction(questions=8)
    intervals = []
    for _ in range(steps):
        found.add_errors(errors(generator, fraction, directed))
        intervals.append(found.interval())
    return intervals


def test_errors_without_a_direction_keep_0_inside_and_the_interval_narrows():
    intervals = after(60, 0.0)

    assert all(low < 0 < high for low, high in intervals)
    assert intervals[-1][1] - intervals[-1][0] < 0.3 * (intervals[1][1] - intervals[1][0])


def test_a_fraction_is_inside_and_0_is_not_after_some_steps():
    low, high = after(60, 3e-4)[-1]

    assert 0 < low < 3e-4 < high


def test_what_may_share_a_direction_is_no_evidence():
    low, high = after(60, 3e-4, directed=1e-3)[-1]

    assert low < 0 < high


def test_the_limits_of_all_steps_together_spend_alpha():
    spent = sum(2 * 8 * math.exp(-(limit_at(step, 8) ** 2) / 2) for step in range(100_000))

    assert spent == pytest.approx(ALPHA, rel=1e-3)


def test_bounds_alone_give_the_common_part_of_the_steps():
    found, value = Fraction(questions=8), torch.ones(4, dtype=torch.float64)
    found.add_bounds(0.5 * value, value, value)
    found.add_bounds(-0.5 * value, value, value)

    assert found.interval() == (-0.5, 0.5)
    found.add_bounds(3 * value, value, value)
    assert found.interval() == (2.0, 4.0)


def of(*numbers):
    return torch.tensor([[numbers]], dtype=torch.float64)


def test_a_step_adds_its_lean_along_the_values_over_the_root_of_the_sum_of_the_squares_of_its_groups():
    found = Fraction(questions=8)
    found.add_errors(Errors(value=of(-2, 1), error=of(0.1, 0.4), directed=of(0.01, 0.02), weight=of(3, 1)))
    assert (found.score, found.room, found.size, found.steps) == pytest.approx((-1.0, 0.4, 65.0, 1))

    found.add_errors(Errors(value=of(-2, 1), error=of(0.1, 0.8), directed=of(0.01, 0.02), weight=of(3, 1)))
    assert (found.score, found.room, found.size, found.steps) == pytest.approx((0.0, 0.8, 130.0, 2))
    half = (0.8 + limit_at(1, 8) * 2**0.5) / 130
    assert found.interval() == pytest.approx((-half, half))


def test_bounds_count_by_the_size_of_their_values():
    found = Fraction(questions=8)
    found.add_bounds(of(0.2, 0.3), of(2, -1), of(0.1, 0.4))

    assert found.interval() == pytest.approx((-0.1, 0.14))


def test_intervals_that_touch_have_a_common_part():
    found, one = Fraction(questions=8), of(1)
    for error in (0.5, -0.5):
        found.add_bounds(error * one, one, 0.5 * one)

    assert found.interval() == (0.0, 0.0)
