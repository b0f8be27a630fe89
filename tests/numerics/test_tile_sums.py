"""The sum over V as an accumulator takes it: what it had before each later tile in which a row sees a key."""

from types import SimpleNamespace

import pytest
import torch

from flashverify.numerics.tile_sums import running_sum


@pytest.mark.parametrize(("keys", "block"), [(9, 4), (8, 4), (3, 4), (1, 1), (6, 1)])
def test_a_running_sum_is_that_of_one_tile_after_the_other(keys: int, block: int) -> None:
    draw = torch.Generator().manual_seed(keys)
    weights = torch.rand(2, 5, keys, generator=draw, dtype=torch.float64)
    v = torch.randn(2, keys, 3, generator=draw, dtype=torch.float64)
    seen = (torch.rand(2, 5, -(-keys // block), generator=draw) < 0.5).double()

    total, passed = running_sum(weights, v, SimpleNamespace(block=block, seen=seen))  # type: ignore[arg-type]

    expected = torch.zeros_like(total)
    for tile in range(1, seen.shape[-1]):
        before = weights[..., : tile * block] @ v[:, : tile * block]
        expected += before.abs() * seen[..., tile].unsqueeze(-1)
    torch.testing.assert_close(total, weights @ v)
    torch.testing.assert_close(passed, expected)
