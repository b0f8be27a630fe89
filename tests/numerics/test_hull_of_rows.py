"""The range of V that each row sees, from its first key to its last: against a loop over rows."""

from types import SimpleNamespace

import pytest
import torch

from flashverify.numerics import hull


@pytest.mark.parametrize("table", [1 << 23, 40])
@pytest.mark.parametrize(("keys", "channels"), [(1, 5), (2, 5), (7, 1), (16, 5), (33, 5), (3, 0)])
def test_every_row_has_the_range_of_its_keys(
    keys: int, channels: int, table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hull, "_TABLE", table)
    draw = torch.Generator().manual_seed(keys)
    v = torch.randn(3, keys, channels, generator=draw, dtype=torch.float64)
    seen = torch.rand(3, 20, keys, generator=draw) < torch.rand(20, 1, generator=draw)
    chunk = SimpleNamespace(
        vis=seen.double(), v=v, empty=~seen.any(-1, keepdim=True), sink=None, kept=None, factor=1.0, cache={}
    )
    top, low = hull._range_of_rows(chunk)  # type: ignore[arg-type]
    for group in range(3):
        for row in range(20):
            places = seen[group, row].nonzero().squeeze(-1).tolist()
            if not places:
                assert bool((top[group, row] == -torch.inf).all())
                assert bool((low[group, row] == torch.inf).all())
                continue
            part = v[group, places[0] : places[-1] + 1]
            assert torch.equal(top[group, row], part.amax(0))
            assert torch.equal(low[group, row], part.amin(0))
