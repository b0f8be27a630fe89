"""Forms that declare the order of their tiles: the errors of maxima, row sums and accumulators, sound under a search for the worst, and no wider than they must be."""

import pytest
import torch
from torch import Tensor

from flashverify.numerics import BoundInputs, Form, forward_bounds
from flashverify_oracles import float64
from tests.fast_tier import fast_one_in
from tests.numerics.ordered import Kernels, climb, ratios

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KERNELS, KEYS = 48, 32


def rows(kind: str, dtype: torch.dtype, block: int, gen: torch.Generator, N: int = KEYS, B: int = KERNELS) -> Kernels:
    """Kernels whose logits stay below the first one, rise from tile to tile, are equal but for their errors, are of any order, or large enough to err by much."""
    place, one = torch.arange(N), torch.ones(B, N)
    signs = torch.sign(torch.randn(B, 2, generator=gen))
    key = {
        "settled": torch.where(place == 0, 2.0, torch.rand(B, N, generator=gen)),
        "rising": (place / (2 * N)).expand(B, N),
        "equal": one / 4,
        "any": torch.randn(B, N, generator=gen),
        "high": (1 + (place == 0) / 128).expand(B, N),
        "steps": (1 + torch.div(place, 8, rounding_mode="floor") / 128).expand(B, N),
    }[kind]
    logit = {
        "equal": torch.linspace(-1, 1, N).expand(B, N),
        "high": torch.where(place == 0, 1.0, -1.0) * signs[:, :1],
        "steps": torch.sign(torch.randn(B, N, generator=gen)),
    }.get(kind, one * signs[:, :1])
    v = torch.randn(B, 1, N, 2, generator=gen)
    v[..., 1] = v[..., 1].abs()
    tiles = torch.ones(B, -(-N // block))
    return Kernels(
        q=torch.full((B, 1, 1, 1), 64.0 if kind in ("high", "steps") else 1.0).to(dtype), k=key.reshape(B, 1, N, 1).to(dtype), v=v.to(dtype),
        logit=logit, exponent=one * signs[:, :1], product=one * signs[:, 1:],
        rescale=tiles * signs[:, :1], total=tiles * signs[:, :1], end=signs,
    )  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("dtype", "of"), [("fp32", "lse"), ("fp32", "o"), ("fp16", "o!"), ("bf16", "o!")])
@pytest.mark.parametrize("kind", fast_one_in(3, ["settled", "rising", "equal", "any", "high", "steps"]))
def test_a_search_for_the_worst_stays_below(kind: str, dtype: str, of: str) -> None:
    gen = torch.Generator().manual_seed(len(kind))
    block = 1 if of == "lse" else 4
    seen, sink = torch.ones(KEYS, dtype=torch.bool), None
    if dtype != "fp16":
        seen[5:13], sink = False, torch.tensor([0.4], dtype=torch.float64)

    assert climb(rows(kind, DTYPES[dtype], block, gen), of, seen, block, sink, 16, gen) > 0.4


N = 512
EVERY = torch.ones(N, dtype=torch.bool)
ALTERNATING = torch.where(torch.arange(N) % 2 == 0, 1.0, -1.0)
FIRST = torch.where(torch.arange(N) == 0, 2.0**-6, 0.0)
"""Logits whose maximum is the first, by more than they err; their weights are near no tie of fp16."""


def worst(
    dtype: str, keys: Tensor, v: Tensor, block: int, *, total: float = 1.0, sink: float | None = None
) -> dict[str, float]:
    """Ratios of a kernel of one row that errs upwards at every step, but for the row sum, and for the weights, which err towards V."""
    up, tiles = torch.ones(1, N), torch.ones(1, -(-N // block))
    x = Kernels(
        q=torch.ones(1, 1, 1, 1).to(DTYPES[dtype]), k=keys.reshape(1, 1, N, 1).to(DTYPES[dtype]), v=v.reshape(1, 1, N, 1).to(DTYPES[dtype]),
        logit=up, exponent=torch.where(v < 0, -1.0, 1.0).reshape(1, N), product=up, rescale=tiles, total=tiles * total, end=torch.ones(1, 2),
    )  # fmt: skip
    found = ratios(x, EVERY, block, None if sink is None else torch.tensor([sink], dtype=torch.float64))
    return {name: float(ratio) for name, ratio in found.items()}


def test_a_maximum_that_rises_in_every_tile_costs_what_it_must() -> None:
    assert 0.9 < worst("fp32", torch.linspace(0.0, 0.25, N), EVERY.float(), 1)["lse"] <= 1


@pytest.mark.parametrize("sink", [None, 0.0])
def test_a_maximum_that_does_not_rise_costs_nothing(sink: float | None) -> None:
    assert 0.75 < worst("fp32", FIRST, EVERY.float(), 1, sink=sink)["lse"] <= 1


@pytest.mark.parametrize(("dtype", "of"), [("fp32", "o"), ("fp16", "o!")])
def test_an_accumulator_errs_in_proportion_to_what_it_holds(dtype: str, of: str) -> None:
    v = torch.where(torch.arange(N) < 128, 1.0, ALTERNATING)
    assert 0.6 < worst(dtype, FIRST, v, 16, total=-1.0)[of] <= 1


@pytest.mark.parametrize(("dtype", "of", "least"), [("fp32", "o", 0.3), ("fp16", "o!", 0.15)])
def test_the_sum_of_a_tile_errs_in_proportion_to_its_products(dtype: str, of: str, least: float) -> None:
    v = torch.where(torch.arange(N) % 16 < 8, 1.0, -1.0)
    assert least < worst(dtype, FIRST, v, 16, total=-1.0)[of] <= 1


def test_the_error_of_the_row_sum_counts_once() -> None:
    v = torch.where(torch.arange(N) < N - 2, 0.0, 1.0)
    assert 0.7 < worst("fp16", FIRST, v, 2, total=-1.0)["o!"] <= 1


def test_nothing_that_is_common_to_a_row_counts_where_values_cancel() -> None:
    form = Form(block_n=2, key_order="ascending", gap_c=1.0, kappa=2.0, architecture="ieee", out_dtype="fp32")
    q, k, v = (
        torch.ones(1, 1, 1, 1),
        FIRST.reshape(1, 1, N, 1),
        torch.stack([EVERY.float(), ALTERNATING], -1)[None, None],
    )
    truth = float64.forward(q, k, v, scale=1.0)
    strict = forward_bounds(BoundInputs.of(q, k, v, scale=1.0, dtype="fp16", form=form), truth.o, truth.lse).strict

    assert strict is not None
    straight, cancelled = strict.bound.total.flatten()
    assert cancelled < straight / 20
