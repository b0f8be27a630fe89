"""Errors that all rows of an LSE have in common."""

import dataclasses
import itertools

import pytest
import torch

from flashverify.checks.statistics.evidence import Errors, surest_tilt
from tests.checks.test_statistics import CASE, failures


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize(
    ("regime", "defect"),
    [("negative", {"log2_e": 1.4427}), ("normal", {"row_sum": 1 + 2.0**-17})],
    ids=["log2(e) in five digits", "a row sum too large"],
)
def test_what_is_common_to_all_rows_is_seen_by_the_lse(dtype, regime, defect):
    case = dataclasses.replace(CASE, dtype=dtype, values=dataclasses.replace(CASE.values, regime=regime))
    case = dataclasses.replace(case, seq_q=384, dim_qk=64, grad=dataclasses.replace(case.grad, backward=False))

    assert failures(case) == set()
    assert ("statistics", "lse", "drift") in failures(case, **defect)
    assert "accuracy" not in {check for check, *_ in failures(case, **defect)}


def test_the_surest_score_is_the_least_over_all_directed_parts():
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        error = 0.5 + torch.randn(1, 7, 1, generator=generator, dtype=torch.float64)
        room = 0.6 * torch.rand(1, 7, 1, generator=generator, dtype=torch.float64)
        ones = torch.ones_like(error)
        found = surest_tilt(Errors(value=ones, error=error, directed=room, weight=ones), ones).score
        sides = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=7)), dtype=torch.float64) * room.flatten()
        left = error.flatten() * torch.sign(error.sum()) - sides
        least = float((left.sum(-1) / left.norm(dim=-1)).min())

        assert found <= max(least, 0.0) + 1e-12
        assert found >= 0.95 * least - 0.05
