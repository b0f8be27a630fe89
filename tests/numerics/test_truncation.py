"""What the sums of a matrix unit lose in one direction, against an emulated unit (docs/bounds.md, section 22)."""

import numpy as np
import pytest
import torch

from flashverify.interpreter.hardware import TensorCore, truncating_dot
from flashverify.numerics import FORMATS
from flashverify.numerics.coefficients import Shape, coefficients
from flashverify.numerics.form import Form
from flashverify.numerics.systematic import without_rounding_to_nearest
from flashverify.numerics.truncation import inexact_dots, truncation_of

CORES = {
    "sm_70": TensorCore(fraction_bits=23, step=4, step_tf32=4),
    "sm_80": TensorCore(fraction_bits=24, step=8, step_tf32=4),
    "sm_90": TensorCore(fraction_bits=25, step=16, step_tf32=8),
}
KINDS = {"fp16": "float16", "bf16": "bfloat16"}
D = 32


def multiplied(x, y, dtype, architecture):
    """`x @ y.mT` as the unit computes it."""
    parts = (z.float().numpy() for z in (x, y.mT))
    found = truncating_dot(*parts, np.float32(0), CORES[architecture], KINDS[dtype])
    return torch.from_numpy(found.astype(np.float64))


def numbers(generator, dtype, *shape, digits, octaves):
    """Numbers of the dtype with so many significant bits, over so many octaves, some of them 0."""
    size = torch.randint(1, 2**digits, shape, generator=generator).double()
    power = torch.exp2(-torch.randint(0, octaves, shape, generator=generator).double())
    sign = torch.randint(-1, 2, shape, generator=generator).double()
    return (size * power * sign).to(FORMATS[dtype].dtype).double()


@pytest.mark.parametrize("architecture", list(CORES))
@pytest.mark.parametrize("dtype", list(KINDS))
def test_a_dot_that_is_said_to_be_exact_is_exact(dtype, architecture):
    """In any order of the products; and of dots that are not, some are rounded at a few times the limit."""
    generator, unit = torch.Generator().manual_seed(1), truncation_of(dtype, architecture, 1)
    exact = rounded = 0
    for digits in range(1, 9 if dtype == "bf16" else 12, 2):
        for octaves in range(1, 24, 5):
            x, y = (numbers(generator, dtype, 1, 24, D, digits=digits, octaves=octaves) for _ in range(2))
            size = (
                x.abs().clamp(min=unit.least).where(x != 0, 0.0) @ y.abs().clamp(min=unit.least).where(y != 0, 0.0).mT
            )
            may_round = inexact_dots(unit, x, y, size) > 0
            order = torch.randperm(D, generator=generator)
            loss = multiplied(x[..., order], y[..., order], dtype, architecture) - x @ y.mT

            assert (loss[~may_round] == 0).all()
            exact, rounded = exact + int((~may_round).sum()), rounded + int((loss[may_round] != 0).sum())
    assert exact > 3_000
    assert rounded > 500


def losses(x, y, dtype, architecture):
    """What the sums over terms lose, over what they may: the largest ratio; x `[1, R, T]`, y `[1, C, T]`."""
    unit = truncation_of(dtype, architecture, 1)
    rate = unit.rate((x != 0).double(), -1, 1.0)
    loss = (multiplied(x, y, dtype, architecture) - x @ y.mT).abs()
    return float((loss / (rate * (x.abs() @ y.abs().mT + 2 * unit.least * y.abs().amax())).clamp(min=1e-300)).max())


@pytest.mark.parametrize(("dtype", "architecture"), [("fp16", "sm_70"), ("bf16", "sm_80"), ("fp16", "sm_90")])
def test_no_sum_of_few_terms_loses_more_than_they_may(dtype, architecture):
    """Climbing towards the largest loss: terms are moved, removed and given other values as long as that loses more."""
    generator = torch.Generator().manual_seed(2)
    highest = 0.0
    for terms in (1, 5, 40):
        x = torch.zeros(1, 4, 96).double()
        places = torch.rand(1, 4, 96, generator=generator).argsort(-1)[..., :terms]
        x = x.scatter(-1, places, numbers(generator, dtype, 1, 4, terms, digits=8, octaves=12))
        y = numbers(generator, dtype, 1, 4, 96, digits=8, octaves=6).abs()
        best = losses(x, y, dtype, architecture)
        for _ in range(40):
            other = x.clone()
            row, place = (int(torch.randint(n, (), generator=generator)) for n in (4, 96))
            other[0, row, place] = numbers(generator, dtype, 1, digits=8, octaves=16).item()
            if (found := losses(other, y, dtype, architecture)) > best:
                x, best = other, found
        highest = max(highest, best)
    assert 0.05 < highest <= 1


def test_the_directed_part_has_the_dots_of_a_unit_that_truncates_and_no_others():
    shape = Shape(group=1, Sq=64, Sk=4096, D=64, Dv=64)

    def directed(dtype, **form):
        made = Form(**form)
        return without_rounding_to_nearest(coefficients(made, dtype, shape, 0.125), made, dtype, shape)

    assert directed("fp16", architecture="sm_90").truncation.rows == 64
    assert directed("fp16", architecture="sm_90").s_dot_fwd > 0
    for dtype, architecture in (("fp16", "ieee"), ("fp32", "sm_90")):
        plain = directed(dtype, architecture=architecture)
        assert plain.truncation is None
        assert (plain.s_dot_fwd, plain.dot_keys, plain.cast_q) == (0, 0, 0)
    assert directed("fp32", architecture="sm_90", dot="tf32").s_dot_fwd > 0
