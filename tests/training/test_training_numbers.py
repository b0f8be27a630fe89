"""The numbers of a training's record: bounds and bands are finite and narrow, norms are those of the gradients, seeds are its own."""

import dataclasses
import math

import pytest
import torch

from flashverify.checks.statistics.evidence import Errors
from flashverify.training.band import band
from flashverify.training.batches import CHARACTERS, batch_of
from flashverify.training.fractions import Fraction
from flashverify.training.model import initial
from flashverify.training.settings import Settings
from tests.training.planted import RIGHT, planted
from tests.training.test_training import seen, trained

SMALL = {"dtype": "fp32", "layers": 1}


def test_every_bound_and_band_of_a_right_subject_is_finite_and_narrow():
    record = trained(RIGHT, **SMALL)

    assert all(0 < width < 1e-3 for width in record.loss_band)
    for step in record.steps:
        assert 0 < step.same_band < 1e-3
        assert all(0 < one.bound < 1e-3 for one in step.outputs)
        assert all(-1e-3 < one.low < 0 < one.high < 1e-3 for one in step.outputs)
        assert all(0 < one.band < 1e-3 * one.exact for one in step.gradients)
        assert {one.output for one in step.outputs} == {"o", "dq", "dk", "dv"}


def test_a_scale_off_by_a_hundredth_is_outside_the_bands_of_the_loss():
    record = trained(planted(scale=1.01), **SMALL)
    found = {finding.what: finding for finding in record.findings if finding.kind == "loss"}

    assert set(found) == {"loss", "loss at the same weights"}
    assert [finding.step for finding in found.values()] == [0, 0]
    assert ("gradient", "wq0") in seen(record)
    for step, width in zip(record.steps, record.loss_band, strict=True):
        assert abs(step.loss - step.same_weights) > 10 * step.same_band
        assert abs(step.loss - step.float64) > 10 * width


def test_the_losses_of_a_step_are_of_four_trainings_and_per_character():
    record = trained(planted(scale=1.01), **SMALL)
    first, second = record.steps

    assert first.same_weights == pytest.approx(first.float64, abs=1e-12), "all begin with the same weights"
    assert abs(second.same_weights - second.float64) > 1e-5, "and go other ways"
    assert all(0 < abs(step.plain - step.float64) < 1e-5 for step in record.steps)
    assert first.same_band == pytest.approx(record.loss_band[0])
    assert first.float64 == pytest.approx(math.log(len(CHARACTERS)), rel=0.2)


@pytest.mark.parametrize(("unrolled", "bands"), [(0, 0), (1, 1), (5, 2)])
def test_the_band_of_the_loss_is_of_so_many_steps_from_the_first_on(unrolled, bands):
    assert len(trained(RIGHT, length=8, unrolled=unrolled, **SMALL).loss_band) == bands


def test_a_step_with_an_output_that_cannot_be_judged_has_no_band(monkeypatch):
    forward = type(RIGHT).forward
    monkeypatch.setattr(type(RIGHT), "forward", lambda self, p: cut(forward(self, p)))
    record = trained(RIGHT, length=8, **SMALL)

    assert ("accuracy", "lse") in seen(record)
    assert record.loss_band == ()
    for step in record.steps:
        assert (step.outputs, step.gradients, step.same_band) == ((), (), math.inf)
        assert math.isnan(step.same_weights)
        assert math.isfinite(step.loss)


def cut(forward):
    return dataclasses.replace(forward, lse=forward.lse[..., :3])


def test_a_gradient_that_is_twice_the_right_one_has_twice_its_norm():
    steps = trained(planted(dk=2.0), **SMALL).steps
    found = [{one.weight: (one.norm / one.exact, one.off / one.exact) for one in step.gradients} for step in steps]

    for each in found:
        assert each["wk0"] == pytest.approx((2.0, 1.0), rel=1e-5)
        for weight in ("wq0", "wv0"):
            assert each[weight] == pytest.approx((1.0, 0.0), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_seed_of_dropout_is_that_of_the_training_with_the_step_and_the_layer(seed):
    calls = []
    trained(planted(calls=calls), dropout=0.2, unrolled=0, length=8, seed=seed)
    first = seed * 1_000_003 * 101

    assert [problem.case.values.seed for problem in calls] == [first + 1, first, first + 102, first + 101]
    assert {problem.dropout_p for problem in calls} == {0.2}


def test_weights_and_batches_are_drawn_from_the_seed_and_batches_from_the_step():
    zero, one = (Settings(subject="", device="cpu", seed=seed) for seed in (0, 1))
    weights = [initial(settings, len(CHARACTERS)) for settings in (zero, zero, one)]

    assert all(map(torch.equal, weights[0], weights[1]))
    assert not any(map(torch.equal, weights[0], weights[2]))
    assert torch.equal(batch_of(zero, 4), batch_of(zero, 4))
    assert not torch.equal(batch_of(zero, 4), batch_of(zero, 5))
    assert not torch.equal(batch_of(zero, 4), batch_of(one, 4))


def test_an_error_that_a_number_does_not_depend_on_may_have_any_bound():
    errors = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    number = 3 * errors[0] + 1

    assert band(number, [errors], [torch.tensor([2.0, math.inf], dtype=torch.float64)]) == 6.0
    assert band(-number, [errors], [torch.tensor([2.0, math.nan], dtype=torch.float64)]) == 6.0
    assert band(number, [errors], [torch.tensor([math.inf, 0.0], dtype=torch.float64)]) == math.inf
    other = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    assert band(number, [other], [torch.ones(1, dtype=torch.float64)]) == 0.0


def test_an_element_without_a_bound_says_nothing_of_a_fraction_and_the_others_do():
    value, bound = torch.ones(4, dtype=torch.float64), torch.full((4,), 0.1, dtype=torch.float64)
    none, found = Fraction(questions=8), Fraction(questions=8)
    none.add_bounds(value, value, torch.full_like(value, math.inf))
    assert none.interval() == (-math.inf, math.inf)

    bound[3] = math.inf
    found.add_bounds(torch.tensor([0.5, 0.5, 0.5, 9.0], dtype=torch.float64), value, bound)
    assert found.interval() == pytest.approx((0.4, 0.6))
    found.add_bounds(value, value * 0, bound)
    assert found.interval() == pytest.approx((0.4, 0.6)), "of values that are 0 there is no fraction"


def test_errors_of_any_size_are_evidence_and_no_error_is_none():
    value = torch.rand(8, 1, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 1
    some = Errors(value=value, error=1e-3 * value, directed=value * 0, weight=value * 0 + 1)
    half = some.weight * (torch.arange(8) % 2)[:, None, None]
    large, tiny, some_groups, none = (Fraction(questions=8) for _ in range(4))
    large.add_errors(some)
    tiny.add_errors(dataclasses.replace(some, weight=some.weight * 1e-30))
    none.add_errors(dataclasses.replace(some, error=value * 0))

    some_groups.add_errors(dataclasses.replace(some, weight=half, error=torch.where(half == 0, 9.0, some.error)))

    assert some_groups.score == pytest.approx(large.score / 2**0.5, rel=0.1), "a group without weight says nothing"
    assert tiny.interval() == pytest.approx(large.interval())
    assert (tiny.steps, none.steps, none.interval()) == (1, 0, (-math.inf, math.inf))
    assert all(map(math.isfinite, large.interval()))
