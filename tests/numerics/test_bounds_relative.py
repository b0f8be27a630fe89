"""The gradient of a relative bias: a correct sum stays below its bound and comes near it; a wrong one exceeds it."""

import random

import pytest
import torch
from torch import Tensor

from flashverify.numerics import BoundInputs, Form, OutputBound, backward_bounds, forward_bounds
from flashverify_oracles import float64, relative_bias, relative_buckets, t5_buckets
from tests.fast_tier import fast_one_in
from tests.numerics.family import Family
from tests.numerics.ratios import worst
from tests.numerics.regimes import REGIMES, draw

SHAPES = ((1, 2, 1, 9, 33), (2, 4, 2, 33, 48), (2, 2, 2, 48, 8))
F32 = torch.float32


class Problem:
    """A problem with a relative bias; the emulated kernel adds it in fp32, as any other bias."""

    def __init__(
        self, dtype: torch.dtype, shape: tuple[int, ...], seed: int, regime: str = "normal", size: float = 1.0
    ) -> None:
        r, gen = random.Random(seed), torch.Generator().manual_seed(seed)
        B, Hq, Hkv, Sq, Sk = shape
        self.tensors = draw(regime, dtype, (B, Hq, Hkv, Sq, Sk, 16, 16), seed)
        kind = r.choice([(32, 128, False), (8, 20, True), (4, 3, True)])
        self.count, of_distance = kind[0], t5_buckets(*kind)
        self.table = (torch.randn(Hq, self.count, generator=gen) * size).float()
        row, key = (torch.arange(Sq) + r.choice([0, Sk - Sq])).expand(B, Sq), torch.arange(Sk).expand(B, Sk)
        self.buckets = relative_buckets(of_distance, row, key)
        bias = relative_bias(self.table, of_distance, row, key)
        self.vis = None if r.random() < 0.4 else torch.rand(Sq, Sk, generator=gen) < 0.7
        self.softcap = r.choice([None, 5.0])
        self.kernel = Family(
            dtype=dtype, scale=0.25, block_n=16, ulps=r.choice([-1, 0, 1]), biases=(bias,), softcap=self.softcap
        )
        self.form = Form(block_n=16, architecture="ieee")

    def ratios(self, add=None, form: Form | None = None) -> dict[str, float]:  # type: ignore[no-untyped-def]
        """Ratios of O, LSE and the gradient of the table, whose sums `add` makes of dS and the buckets; conditional ones end in `|`."""
        q, k, v, do = self.tensors
        asked = {"scale": 0.25, "visible": self.vis, "biases": self.kernel.biases, "softcap": self.softcap}
        learned = {"relative_buckets": self.buckets, "bucket_count": self.count}
        pairs = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool) if self.vis is None else self.vis
        truth = float64.forward(q, k, v, **asked)
        problem = BoundInputs.of(q, k, v, dtype=q.dtype, form=form or self.form, chunk_elements=2000, **asked)
        F = forward_bounds(problem, truth.o, truth.lse)
        o, lse, kept = self.kernel.forward(q, k, v, pairs)
        ds = self.kernel.backward(q, k, v, do, o, kept, pairs, None)[4]
        got = (add or in_fp32)(ds, self.buckets.expand(ds.shape), self.count)
        found = {"o": worst(o, truth.o, F.o), "lse": worst(lse, truth.lse, F.lse)}
        for mark, given in (("", {}), ("|", {"given_o": o, "given_lse": lse})):
            g = float64.backward(q, k, v, do, forward=truth, **given, **asked, **learned)
            at = {"o": truth.o, "lse": truth.lse, "forward": F} if not mark else {"o": o, "lse": lse}
            bounds = backward_bounds(
                problem,
                do=do,
                dq=g.dq,
                dk=g.dk,
                dv=g.dv,
                drelative_bias=g.drelative_bias,
                relative_buckets=self.buckets,
                **at,
            )
            assert bounds.drelative_bias is not None
            assert g.drelative_bias is not None
            found["table" + mark] = worst(got, g.drelative_bias, bounds.drelative_bias)
            self.bound: OutputBound = bounds.drelative_bias
        return found


def in_fp32(ds: Tensor, buckets: Tensor, count: int) -> Tensor:
    """One after the other in fp32, pair by pair."""
    total = torch.zeros(ds.shape[1], count)
    for h in range(ds.shape[1]):
        total[h].index_add_(0, buckets[:, h].reshape(-1), ds[:, h].reshape(-1))
    return total


def rounded_before(ds: Tensor, buckets: Tensor, count: int) -> Tensor:
    return in_fp32(ds.to(torch.bfloat16).to(F32), buckets, count)


def rounding_first() -> Form:
    return Form(block_n=16, architecture="ieee", dbias_partial="input")


@pytest.mark.parametrize(
    ("size", "dtype"),
    fast_one_in(
        4,
        (
            pytest.param(size, dtype, id=f"{size}-{dtype}")
            for size in (1.0, 0.0, 30.0)
            for dtype in (torch.float16, torch.bfloat16, torch.float32)
        ),
        kept=4,
    ),
)
def test_a_correct_kernel_is_within_its_bound(dtype: torch.dtype, size: float) -> None:
    for seed, regime in enumerate(REGIMES):
        ratios = Problem(dtype, SHAPES[seed % 3], seed, regime, size).ratios()
        assert max(ratios.values()) <= 1, (regime, ratios)


def test_a_bucket_without_a_visible_pair_is_exact() -> None:
    problem = Problem(torch.float16, SHAPES[0], 1)
    problem.ratios()
    seen = (
        torch.ones_like(problem.buckets, dtype=torch.bool)
        if problem.vis is None
        else problem.vis.expand_as(problem.buckets)
    )
    without = [n for n in range(problem.count) if not bool((seen & (problem.buckets == n)).any())]
    assert without
    assert not problem.bound.bound[:, without].any()
    filled = [n for n in range(problem.count) if n not in without]
    assert bool((problem.bound.bound[:, filled] > 0).all())


def test_the_bound_is_sharp() -> None:
    """Where dS is rounded before the sum, a bucket of few pairs is as far off as it may be."""
    best = 0.0
    for seed in range(6):
        problem = Problem(torch.bfloat16, (1, 4, 4, 1, 8), seed)
        best = max(best, problem.ratios(rounded_before, rounding_first())["table|"])
    assert best > 0.5, best


def test_the_bound_of_a_sum_in_fp32_is_near() -> None:
    sharp = Form(block_n=16, architecture="ieee", kappa=2.0, gap_c=1.0, kappa_bias=2.0)
    best = max(Problem(torch.float32, (1, 4, 4, 1, 8), seed).ratios(form=sharp)["table|"] for seed in range(6))
    assert best > 0.05, best


def test_dS_that_is_rounded_before_the_sum_is_within_the_form_that_says_so() -> None:  # noqa: N802
    for seed in range(6):
        problem = Problem(torch.bfloat16, SHAPES[1], seed)
        assert problem.ratios(rounded_before, rounding_first())["table|"] <= 1


def test_dS_that_is_rounded_before_the_sum_is_not_within_that_of_fp32() -> None:  # noqa: N802
    problem = Problem(torch.float32, SHAPES[1], 3)
    assert problem.ratios(rounded_before)["table|"] > 100


@pytest.mark.parametrize(
    "add",
    [
        lambda ds, buckets, count: in_fp32(ds[:1], buckets[:1], count),
        lambda ds, buckets, count: -in_fp32(ds, buckets, count),
        lambda ds, buckets, count: in_fp32(ds, buckets, count).roll(1, 0),
        lambda ds, buckets, count: in_fp32(ds, (buckets + 1) % count, count),
    ],
    ids=["first sequence", "sign", "next head", "next bucket"],
)
@pytest.mark.parametrize(("dtype", "factor"), [(torch.float16, 30), (torch.bfloat16, 10)], ids=["fp16", "bf16"])
def test_a_wrong_sum_is_over_the_bound(add, dtype: torch.dtype, factor: float) -> None:  # type: ignore[no-untyped-def]
    ratios = Problem(dtype, SHAPES[1], 3).ratios(add)
    assert ratios["table|"] > factor, ratios
