"""Exponentials of arguments far below 0 have the bits of torch's."""

import itertools
import math

import pytest
import torch

from flashverify.numerics.exponential import exp_ as exp_of_logits
from flashverify_oracles._exponential import exp_ as exp_of_scores

ZEROS = (-1e300, -math.inf, -800.0, math.nextafter(-746.0, -math.inf))
BETWEEN = (-746.0, -745.0, -710.0, -701.0, -700.5, -700.0)
OTHERS = (math.nextafter(-700.0, 0.0), -1.0, 0.0, 100.0, math.inf, math.nan)


@pytest.mark.parametrize("exp_", [exp_of_logits, exp_of_scores], ids=("logits", "scores"))
@pytest.mark.parametrize("between", [(), BETWEEN], ids=("normal or zero", "subnormal too"))
def test_powers_have_the_bits_of_torch(exp_, between):
    special = torch.tensor((*ZEROS, *between, *OTHERS), dtype=torch.float64)
    for seed, size in itertools.product(range(4), (1, 7, 64, 1001)):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(size, 3, dtype=torch.float64, generator=generator) * 30
        chosen = torch.randint(len(special), x.shape, generator=generator)
        x = torch.where(torch.rand(x.shape, generator=generator) < 0.5, special[chosen], x)
        for given in (x, x.mT):
            expected, found = given.clone().exp_(), exp_(given.clone())
            assert torch.equal(found.view(torch.int64), expected.view(torch.int64))


@pytest.mark.parametrize("exp_", [exp_of_logits, exp_of_scores], ids=("logits", "scores"))
def test_powers_take_the_place_of_their_arguments(exp_):
    for given in (torch.tensor([0.0, -1e300], dtype=torch.float64), torch.empty(0, 3, dtype=torch.float64)):
        assert exp_(given).data_ptr() == given.data_ptr()
