"""The scores of the check `statistics` and the tables that it reads: tails of even signs, weights of groups, fields of a form."""

import dataclasses

import pytest
import torch

from flashverify.checks.statistics.evidence import Errors, leaning_tiles, spread, steepest_tilt, tilt, tilt_limit
from flashverify.numerics import FORMATS, Form
from flashverify.numerics.form import _CHOICES
from flashverify.numerics.systematic import rounds_plainly, without_roundings
from flashverify.numerics.weighted_sums import WeightedSum


def errors_of(error, value):
    out = FORMATS["fp16"]
    return Errors.of(value + error, value, torch.zeros_like(value), torch.ones_like(value), out)


def test_the_score_is_a_tail_of_even_signs():
    """Leans of wildly different sizes and even signs: scores above x are no more than `2 exp(-x^2 / 2)`."""
    generator = torch.Generator().manual_seed(7)
    value = 1 + torch.rand(1, 64, 4, generator=generator, dtype=torch.float64)
    terms = WeightedSum(weights=torch.ones(1, 64, 1).double(), operand=value[:, :1], length=1, unit=0.0, floor=0.0)
    scores = []
    for _ in range(2000):
        size = torch.exp(2 * torch.randn(1, 64, 1, generator=generator, dtype=torch.float64)) * 2.0**-14
        sign = torch.randint(0, 2, (1, 64, 1), generator=generator).double() * 2 - 1
        scores.append(steepest_tilt(errors_of(size * sign, value), terms, (), 1e-9)[0].score)

    for x in (1.5, 2.0, 2.5):
        assert 2000 * 0.001 < sum(score > x for score in scores) + 2 <= 2000 * 2 * torch.tensor(-x * x / 2).exp() + 2
    assert tilt_limit(1e-9, 1) == pytest.approx(6.54, abs=0.01)


def test_a_lean_within_the_directed_part_scores_nothing():
    value = torch.linspace(1, 2, 64 * 4, dtype=torch.float64).view(1, 64, 4)
    leaning = Errors.of(value * (1 + 2.0**-13), value, value * 2.0**-13, torch.ones_like(value), FORMATS["fp16"])
    terms = WeightedSum(weights=value[..., :1], operand=value[:, :1], length=1, unit=0.0, floor=0.0)

    assert steepest_tilt(leaning, terms, (), 1e-9)[0].score == 0
    assert steepest_tilt(errors_of(value * 2.0**-13, value), terms, (), 1e-9)[0].score > 7
    assert spread(leaning, torch.zeros_like(value))[2] == 64


@pytest.mark.parametrize("room", [0.0, 2.0**-14, 2.0**-8])
@pytest.mark.parametrize("slope", [0.0, 2.0**-12, -(2.0**-11)])
def test_the_tile_that_is_found_is_the_steepest_of_all(slope, room):
    """Rows of two heads of a group, so that a tile has places of both; tiles are summed one by one here."""
    generator = torch.Generator().manual_seed(11)
    weights = torch.rand(2, 60, 80, generator=generator, dtype=torch.float64)
    terms = WeightedSum(
        weights=weights,
        operand=torch.randn(2, 80, 8, generator=generator, dtype=torch.float64),
        length=40,
        unit=2.0**-11,
        floor=0.0,
    )
    value = weights @ terms.operand
    noise = 2.0**-13 * torch.randn(2, 60, 8, generator=generator, dtype=torch.float64)
    noise += slope * (weights[..., 16:24] @ terms.operand[:, 16:24] + weights[..., 56:64] @ terms.operand[:, 56:64])
    ones = torch.ones_like(value)
    errors = Errors(value=value, error=noise, directed=room * ones, weight=ones)
    shares = {}
    for width in (8, 16, 32):
        for number in range(-(-40 // width)):
            here = torch.arange(80)[torch.arange(80) % 40 // width == number]
            shares[width, number] = weights[..., here] @ terms.operand[:, here]
    all_tiles = {tile: tilt(errors, share).score for tile, share in shares.items()}
    steepest = max(all_tiles, key=all_tiles.get)
    limit = tilt_limit(1e-9, 1 + 5 + 3 + 2)

    _, found, said = steepest_tilt(errors, terms, (8, 16, 32, 64), 1e-9)
    asked = dict(leaning_tiles(errors, terms, (8, 16, 32, 64), 1.0))
    bare = dataclasses.replace(errors, directed=torch.zeros_like(value))

    assert torch.allclose(terms.along(noise).sum(-1), (noise * value).sum(-1), rtol=1e-9, atol=1e-15)
    assert set(asked) == {tile for tile, share in shares.items() if tilt(bare, share).score > 1}
    assert all(torch.allclose(share, shares[tile], rtol=1e-12) for tile, share in asked.items())
    assert said == pytest.approx(limit)
    assert (found is None) == (slope == 0 or room == 2.0**-8) == (all_tiles[steepest] <= limit)
    assert found is None or (found.tile == steepest == (8, 2) and found.score == pytest.approx(all_tiles[steepest]))


def test_every_field_of_a_form_is_said_to_round_to_nearest_or_kept():
    """A new field that rounds values to 16 bits and is not named there would make `spread` blame right kernels."""
    odd = {"n_splits": 2, "n_merges": 2, "block_n": 64, "n_blocks": 3, "grad_adds": 2, "grad_parts": 2}
    odd |= {"architecture": "sm_90", "exp_eps": 9.0}
    odd |= {"p_dtype": "e4m3", "fp8_chain": 64}
    kept = set()
    for field in dataclasses.fields(Form):
        default = getattr(Form(), field.name)
        value = odd.get(field.name) or other_value(field.name, default)
        form = dataclasses.replace(Form(block_n=64, prescale_bwd="k"), **{field.name: value})
        if getattr(without_roundings(form), field.name) == value:
            kept.add(field.name)

    assert kept == {
        *("exp", "exp_eps", "gap_c", "kappa", "kappa_bias", "rescale_threshold", "scale_ds", "normalise", "dp_init", "delta_from"),
        *("p_from", "n_splits", "block_n", "n_blocks", "grad_adds", "grad_accum_of", "partial_lse_base", "bwd_lse_base", "lse_base"),
        *("softcap", "softcap_slope", "max_source", "stored_delta", "empty_row_lse", "masked_ds", "dot", "architecture", "partials"),
        *("dequantised", "v_scale_last", "products", "fp8_chain"),
        *("n_merges", "grad_parts"),
    }  # fmt: skip


def other_value(name, default):
    """A value of a field that is not its default."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, float):
        return default + 1
    return next(choice for choice in (*_CHOICES.get(name, ()), "fp16", "bf16") if choice not in (default, "fp32"))


def test_every_form_that_rounds_more_is_told_apart():
    assert rounds_plainly(Form(out_dtype="fp16", block_n=64, key_order="ascending", architecture="sm_90"))
    assert not rounds_plainly(Form(grad_accum="fp16"))
    assert not rounds_plainly(Form(row_sum="rounded"))
    assert not rounds_plainly(Form(o_accum="fp16"))
    assert not rounds_plainly(Form(p_dtype="e4m3"))


@pytest.mark.parametrize(
    ("weights", "various"),
    [
        ([1, 2, 3, 4, 5, 6], True),
        ([1, 1, 1, 1, 1, 1], False),
        ([1, 3, 1, 3, 1, 3], False),
        ([1, 1.1, 1.2, 1.3, 1.15, 1.25], False),
        ([100, 1, 2, 3, 4, 5], False),
        ([0, 0, 0, 0, 0, 0], False),
    ],
)
def test_weights_of_a_group_are_various(weights, various):
    row = torch.tensor(weights, dtype=torch.float64).view(1, 1, -1)
    terms = WeightedSum(weights=row, operand=row.mT, length=6, unit=0.0, floor=0.0)

    assert terms.various().tolist() == [[various]]


def test_weights_that_may_become_zero_are_lost_in_one_direction():
    row = torch.tensor([1.0, -(2.0**-24), 2.0**-26, 2.0**-23], dtype=torch.float64).view(1, 1, -1)
    operand = torch.tensor([5.0, -2.0, 4.0, 7.0], dtype=torch.float64).view(1, -1, 1)
    terms = WeightedSum(weights=row, operand=operand, length=4, unit=2.0**-11, floor=FORMATS["fp16"].eta)

    assert terms.vanishing().item() == 2 * 2.0**-24 + 4 * 2.0**-26
