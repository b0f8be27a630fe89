"""Forms that declare the order of their tiles: the errors of maxima, row sums and accumulators, sound under a search for the worst, and no wider than they must be."""

import pytest
import torch
from torch import Tensor

from tests.numerics.ordered import Kernels, bounds, climb, ratios

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KERNELS, KEYS = 48, 32


def rows(kind: str, dtype: torch.dtype, block: int, gen: torch.Generator, N: int = KEYS, B: int = KERNELS) -> Kernels:
    """Kernels whose logits stay below the first one, rise from tile to tile, are equal but for their errors, or are of any order."""
    key = {
        "settled": torch.where(torch.arange(N) == 0, 2.0, torch.rand(B, N, generator=gen)),
        "rising": torch.linspace(0.01, 0.5, N).expand(B, N),
        "equal": torch.full((B, N), 0.25),
        "any": torch.randn(B, N, generator=gen),
    }[kind]
    v = torch.randn(B, 1, N, 2, generator=gen)
    v[..., 1] = v[..., 1].abs()
    one = torch.ones(B, N)
    ends = torch.linspace(-1, 1, N).expand(B, N) if kind == "equal" else one
    tiles = torch.ones(B, -(-N // block))
    signs = torch.sign(torch.randn(B, 2, generator=gen))
    return Kernels(
        q=torch.ones(B, 1, 1, 1).to(dtype), k=key.reshape(B, 1, N, 1).to(dtype), v=v.to(dtype),
        logit=ends * signs[:, :1] ** (kind != "equal"), exponent=one * signs[:, :1], product=one * signs[:, 1:],
        rescale=tiles * signs[:, :1], total=tiles * signs[:, :1], end=signs,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "of"), [("fp32", "lse"), ("fp32", "o"), ("fp16", "o!"), ("bf16", "o!")])
@pytest.mark.parametrize("kind", ["settled", "rising", "equal", "any"])
def test_a_search_for_the_worst_stays_below(kind: str, dtype: str, of: str) -> None:
    gen = torch.Generator().manual_seed(len(kind))
    block = 1 if of == "lse" else 4
    seen, sink = torch.ones(KEYS, dtype=torch.bool), None
    if dtype != "fp16":
        seen[5:13], sink = False, torch.tensor([0.4], dtype=torch.float64)

    assert climb(rows(kind, DTYPES[dtype], block, gen), of, seen, block, sink, 30, gen) > 0.35


N = 512
EVERY = torch.ones(N, dtype=torch.bool)
ALTERNATING = torch.where(torch.arange(N) % 2 == 0, 1.0, -1.0)
FIRST = torch.where(torch.arange(N) == 0, 2.0**-6, 0.0)
"""Logits whose maximum is the first, by more than they err; their weights are near no tie of fp16."""


def one(
    dtype: torch.dtype, keys: Tensor, v: Tensor, block: int, *, total: float = 1.0, product: float = -1.0
) -> Kernels:
    """A kernel of one row that errs upwards at every step, but for the row sum and the sum over V, which err in the directions given."""
    up, tiles = torch.ones(1, N), torch.ones(1, -(-N // block))
    return Kernels(
        q=torch.ones(1, 1, 1, 1).to(dtype), k=keys.reshape(1, 1, N, 1).to(dtype), v=v.reshape(1, 1, N, -1).to(dtype),
        logit=up, exponent=up, product=up * product, rescale=tiles, total=tiles * total, end=torch.ones(1, 2),
    )  # fmt: skip


def test_a_maximum_that_rises_in_every_tile_costs_what_it_must() -> None:
    x = one(torch.float32, torch.linspace(0.0, 0.25, N), ALTERNATING, 1)
    assert float(ratios(x, EVERY, 1)["lse"]) > 0.9


@pytest.mark.parametrize("sink", [None, 0.0])
def test_a_maximum_that_does_not_rise_costs_nothing(sink: float | None) -> None:
    logit = None if sink is None else torch.tensor([sink], dtype=torch.float64)
    assert float(ratios(one(torch.float32, FIRST, ALTERNATING, 1), EVERY, 1, logit)["lse"]) > 0.75


def test_an_accumulator_errs_in_proportion_to_what_it_holds() -> None:
    v = torch.where(torch.arange(N) < 8, 1.0, ALTERNATING * 2.0**-12)
    assert float(ratios(one(torch.float32, FIRST, v, 16, total=-1.0, product=1.0), EVERY, 16)["o"]) > 0.7


def test_the_error_of_the_row_sum_counts_once() -> None:
    v = torch.where(torch.arange(N) < N - 2, 0.0, 1.0)
    assert float(ratios(one(torch.float16, FIRST, v, 2, total=-1.0, product=1.0), EVERY, 2)["o!"]) > 0.7


def test_nothing_that_is_common_to_a_row_counts_where_values_cancel() -> None:
    values = torch.stack([torch.ones(N), ALTERNATING], -1)
    bound = bounds(one(torch.float16, FIRST, values, 2), EVERY, 2, None)[1].strict
    assert bound is not None
    straight, cancelled = bound.bound.total.flatten()
    assert cancelled < straight / 20
