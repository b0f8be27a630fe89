"""The worst ratio and the quantiles of an output, as a host and as a GPU work them out; and the short answer about right outputs."""

from __future__ import annotations

import math

import pytest
import torch

from flashverify.judge import summary as module
from flashverify.judge.compare import compare_output, plainly_right
from flashverify.judge.summary import summary
from flashverify.numerics.result import OutputBound

SHAPE = (2, 3, 7)


def ratios(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Ratios with ties and infinities, 0 where nothing is judged, and what is judged."""
    drawn = torch.Generator().manual_seed(5)
    ratio = torch.randint(0, 9, SHAPE, generator=drawn).double() / 8
    judged = torch.ones(SHAPE, dtype=torch.bool)
    if kind != "all":
        judged = torch.rand(SHAPE, generator=drawn) < 0.6
    if kind == "none":
        judged &= False
    if kind == "one":
        judged = torch.arange(math.prod(SHAPE)).view(SHAPE) == 11
    if kind == "infinite":
        ratio[0, 1, :5] = torch.inf
    return torch.where(judged, ratio, 0.0), judged


@pytest.mark.parametrize("way", ["_on_host", "_on_device"])
@pytest.mark.parametrize("kind", ["all", "some", "none", "one", "infinite"])
def test_a_host_and_a_gpu_give_the_elements_at_the_places_of_a_sorted_list(way, kind):
    ratio, judged = ratios(kind)
    kept = sorted(ratio[judged].tolist())
    expected = (
        (0.0, 0.0, 0.0) if not kept else (kept[-1], kept[(len(kept) - 1) // 2], kept[99 * (len(kept) - 1) // 100])
    )
    if way == "_on_host":
        found = module._on_host(ratio.reshape(-1), judged.reshape(-1), ratio.shape)
    else:
        found = module._on_device(ratio.sum(), [], ratio, judged)[2]
    worst, index, *quantiles = found
    assert (worst, *quantiles) == expected
    assert index == () if not kept else ratio[index] == worst


@pytest.mark.parametrize("kind", ["all", "some", "none", "one", "infinite"])
def test_a_gpu_counts_in_one_transfer_what_a_host_counts(kind):
    ratio, judged = ratios(kind)
    masks = [judged & (ratio > 0.5), ratio == 0, torch.zeros_like(judged), ~judged]
    amount = torch.tensor(-3.25, dtype=torch.float64)

    assert module._on_device(amount, masks, ratio, judged)[:2] == module.counted(amount, masks)
    assert module.measured(amount, masks, ratio, judged) == (*module.counted(amount, masks), summary(ratio, judged))


def test_what_is_judged_broadcasts():
    ratio = torch.arange(6.0).double().view(1, 2, 3)
    rows = torch.tensor([True, False]).view(1, 2, 1)
    assert summary(ratio.where(rows, 0.0), rows) == (2.0, (0, 0, 2), 1.0, 1.0)


def bound_of(**changes: torch.Tensor) -> OutputBound:
    no = torch.zeros(3, dtype=torch.bool)
    parts = dict.fromkeys(("may_overflow", "may_flip", "must_overflow", "uninformative"), no)
    return OutputBound(
        **({"bound": torch.full((3,), 0.25).double(), "self_error": torch.zeros(3).double()} | parts | changes)
    )


EXPECTED = torch.tensor([1.0, -2.0, 0.0], dtype=torch.float64)
RIGHT = torch.tensor([1.25, -2.25, 0.0])
BEYOND = torch.tensor([1.0, -2.25 - 2.0**-20, 0.0])


@pytest.mark.parametrize(
    ("got", "changes", "pinned"),
    [
        (RIGHT, {}, None),
        (BEYOND, {}, None),
        (torch.tensor([math.nan, -2.0, 0.0]), {}, None),
        (torch.tensor([1.0, -math.inf, 0.0]), {}, None),
        (torch.tensor([1.0, -math.inf, 0.0]), {"may_overflow": torch.tensor([False, True, False])}, None),
        (RIGHT, {"must_overflow": torch.tensor([True, False, False])}, None),
        (torch.tensor([1.0, -2.0, 0.125]), {}, torch.tensor([False, False, True])),
        (RIGHT, {}, torch.tensor([False, False, True])),
        (torch.tensor([9.0, -2.0, 0.0]), {"bound": torch.tensor([math.inf, 0.25, 0.0]).double()}, None),
    ],
)
def test_what_is_called_plainly_right_has_no_failure(got, changes, pinned):
    bound = bound_of(**changes)
    quick = plainly_right("o", got, EXPECTED, bound, pinned=pinned)
    whole = compare_output("o", got, EXPECTED, bound, pinned=pinned)
    assert quick is None or not whole.verdicts
    if got is RIGHT and not changes:
        assert quick is not None
        assert (quick.stats.output, quick.stats.elements) == ("o", 3)
    if whole.verdicts:
        assert quick is None
