"""How far the slope of a softcap moves where its argument is off."""

import torch

from flashverify.numerics.gradients import _moved


def slope(x: torch.Tensor) -> torch.Tensor:
    return 1 / torch.cosh(x.clamp(-300, 300)) ** 2


def test_the_slope_moves_no_further_than_its_bound_in_either_direction() -> None:
    x = torch.cat([torch.zeros(1, dtype=torch.float64), torch.logspace(-3, 2, 60, dtype=torch.float64)])[:, None, None]
    b = torch.logspace(-4, 1.5, 60, dtype=torch.float64)[None, :, None]
    off = torch.linspace(-1, 1, 201, dtype=torch.float64)
    moved = (slope(x + b * off) - slope(x)).abs().amax(-1)
    bound = _moved(x[..., 0].expand_as(moved), slope(x[..., 0]).expand_as(moved), b[..., 0].expand_as(moved))
    assert bool((moved <= bound * (1 + 1e-9) + 1e-300).all())
    assert bool((bound <= 1).all() | (bound[b[..., 0].expand_as(moved) >= 0.5] <= 1).all())
    far = b[0, :, 0] >= 0.5
    assert bool((moved[:, far].amax(0) >= 0.5 * bound[:, far].amax(0)).all()), "it is no wider than twice what is met"
