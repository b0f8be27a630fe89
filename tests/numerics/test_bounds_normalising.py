"""Normalisation through the LSE: a bound that is reached from below, and why the plain form does not hold."""

import pytest
import torch

from flashverify.numerics import Form
from tests.numerics.emulator import Emulator
from tests.numerics.ratios import measure
from tests.numerics.regimes import draw


def _ratio(normalise: str, declared: str, *, logit: float = 0.0, scale: float = 0.25, **played: object) -> float:
    """Of O, for a constant V: what is common to all weights of a row is all that is left."""
    q, k, v, do = draw("zeros", torch.float32, (1, 1, 1, 16, 16, 8, 8), 4)
    q[..., 0], k[..., 0], v = logit, 1.0 + torch.arange(16) / 1e5, torch.ones_like(v)
    kernel = Emulator(dtype=torch.float32, scale=scale, normalise=normalise, **played)  # type: ignore[arg-type]
    form = Form(normalise=declared, block_n=16, architecture="ieee", exp="poly" if "exp_error" in played else "ex2")
    return measure(kernel, q, k, v, do, scale=scale, form=form)["o"]


@pytest.mark.parametrize(("normalise", "close"), [("lse", 0.9), ("lse_weights", 0.6)])
def test_an_exponential_that_errs_one_way_comes_close(normalise: str, close: float) -> None:
    """In the pass that finds the LSE it errs downwards, in the one that makes the weights upwards."""
    lean = torch.full((1, 1, 16, 16), -1.0) if normalise == "lse_weights" else None
    assert close < _ratio(normalise, normalise, exp_error=1590 * 2.0**-24, lean=lean) < 1


@pytest.mark.parametrize("normalise", ["lse", "lse_weights"])
def test_the_rounding_of_a_large_lse_is_no_part_of_the_plain_form(normalise: str) -> None:
    scales = [0.3 + i / 400 for i in range(24)]

    plain, own = (max(_ratio(normalise, form, logit=3e3, scale=x) for x in scales) for form in ("end", normalise))

    assert plain > 5
    assert 0.01 < own < 1
    assert _ratio("end", "end", logit=3e3) < 1
