"""Operands that hardware flushes to zero, and the hull of the keys that a row sees: attacked from below, and no wider than the attack needs."""

import pytest
import torch
from torch import Tensor

from flashverify.numerics import BoundInputs, Form, backward_bounds, forward_bounds
from flashverify_oracles import float64
from tests.numerics.emulator import F32, TINY, Emulator
from tests.numerics.ratios import measure
from tests.numerics.regimes import draw

SHAPE = (1, 2, 1, 8, 24, 16, 16)
WIDE = {"bf16": torch.bfloat16, "fp32": torch.float32}
FORM = Form(block_n=16, architecture="ieee", delta_from="o", p_from="lse")
wide = pytest.mark.parametrize("dtype", WIDE)


class Flushing(Emulator):
    """A kernel whose every operand of a product is flushed to zero where it is subnormal."""

    def dot(self, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        return super().dot(flushed(a), flushed(b), c)

    def backward(self, q, k, v, do, o, kept, vis, dlse):  # type: ignore[no-untyped-def]
        return super().backward(q, k, v, flushed(do), flushed(o), kept, vis, dlse)


def flushed(x: Tensor) -> Tensor:
    return torch.where(x.to(F32).abs() < TINY, torch.zeros((), dtype=x.dtype), x)


def scaled(dtype: str, seed: int, powers: dict[str, int]) -> list[Tensor]:
    tensors = draw("normal", torch.float64, SHAPE, seed)
    return [
        (x * 2.0 ** powers.get(name, 0)).to(WIDE[dtype]) for name, x in zip(("q", "k", "v", "do"), tensors, strict=True)
    ]


@wide
@pytest.mark.parametrize(
    ("powers", "close"),
    [
        ({"q": 123, "k": -126}, {"lse": 0.2, "dk|": 0.5}),
        ({"q": -126, "k": 123}, {"lse": 0.2, "dq|": 0.5}),
        ({"v": 120, "do": -126}, {"delta": 0.9, "dq": 0.3, "dk": 0.4}),
        ({"v": -126, "do": 120}, {"delta|": 0.15, "dq|": 0.15, "dk|": 0.15}),
        ({"v": 60, "do": 62, "k": -126, "q": -126}, {"dq": 0.8, "dk": 0.9}),
    ],
)
def test_a_kernel_that_flushes_comes_close_to_its_bounds(
    dtype: str, powers: dict[str, int], close: dict[str, float]
) -> None:
    reached: dict[str, float] = {}
    for seed in range(4):
        tensors = scaled(dtype, seed, powers)
        ratios = measure(Flushing(dtype=WIDE[dtype], scale=0.25), *tensors, scale=0.25, form=FORM)
        assert all(ratios[name] <= 1 for name in ratios if name not in ("exempt", "vague"))
        reached |= {name: max(ratios[name], reached.get(name, 0.0)) for name in ratios}
    assert all(reached[name] > least for name, least in close.items())


@wide
@pytest.mark.parametrize(
    ("powers", "outputs"),
    [
        ({"q": 120, "k": -122}, ("lse", "o")),
        ({"v": 120, "do": -116}, ("delta", "dq")),
        ({"v": -90, "do": 120}, ("delta", "dq")),
    ],
)
def test_operands_that_are_normal_cost_nothing(dtype: str, powers: dict[str, int], outputs: tuple[str, ...]) -> None:
    """Their powers of two are no part of a relative error: the bounds are those of values near 1."""

    def relative(powers: dict[str, int]) -> dict[str, Tensor]:
        q, k, v, do = scaled(dtype, 1, powers)
        # What is smaller than the smallest normal number is no subject of this test.
        q, k, v, do = (torch.where(x.abs() < 2 * TINY, 2 * TINY, x.double()).to(x.dtype) for x in (q, k, v, do))
        scale = 0.25 * 2.0 ** -(powers.get("q", 0) + powers.get("k", 0))
        truth = float64.forward(q, k, v, scale=scale)
        g = float64.backward(q, k, v, do, scale=scale, forward=truth)
        problem = BoundInputs.of(q, k, v, scale=scale, dtype=dtype, form=FORM)
        F = forward_bounds(problem, truth.o, truth.lse)
        B = backward_bounds(problem, do=do, o=truth.o, lse=truth.lse, dq=g.dq, dk=g.dk, dv=g.dv, forward=F)
        values = {"o": (truth.o, F.o), "lse": (truth.lse, F.lse), "delta": (g.delta, B.delta), "dq": (g.dq, B.dq)}
        return {name: (x.bound / y.abs()).median() for name, (y, x) in values.items()}

    near_one, far = relative({}), relative(powers)
    for name in outputs:
        assert float(far[name]) < 1.5 * float(near_one[name]), name


def test_any_mean_of_the_values_that_a_row_sees_is_within_its_hull() -> None:
    """Logits so large that no weight is known: a kernel may return any mean of the V that the row sees, and no other."""
    generator = torch.Generator().manual_seed(3)
    q, k, v, _ = draw("normal", torch.float32, (1, 2, 1, 12, 21, 16, 8), 3)
    rows = torch.arange(12)[:, None]
    masks = (
        torch.ones(12, 21, dtype=torch.bool).tril(),
        (torch.arange(21) - rows).abs() < 3,
        torch.rand(12, 21, generator=generator) < 0.15,
        torch.arange(21) == rows,
    )
    for vis in masks:
        truth = float64.forward(q, k, v, scale=1e12, visible=vis)
        found = forward_bounds(BoundInputs.of(q, k, v, scale=1e12, dtype="fp32", visible=vis), truth.o, truth.lse).o
        own = torch.where(vis[..., None], v[:, :, None].double(), torch.nan)
        top, low = (
            own.nan_to_num(x).amax(3) if x < 0 else -(-own).nan_to_num(-x).amax(3) for x in (-torch.inf, torch.inf)
        )
        for _ in range(20):
            weights = torch.rand(12, 21, generator=generator, dtype=torch.float64).pow(8) * vis
            mean = (weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)) @ v.double().expand(1, 2, 21, 8)
            assert bool(((mean - truth.o).abs() <= found.total).all())
        hull = torch.maximum(top - truth.o, truth.o - low).clamp(min=0.0)
        several = vis.sum(-1) > 1
        one = vis.sum(-1) == 1
        assert bool((found.bound[:, :, several] >= hull[:, :, several]).all())
        assert bool((found.bound[:, :, one] < 1e-4).all())
        contiguous = torch.equal(vis, masks[0]) or torch.equal(vis, masks[1])
        if contiguous:
            roundings = 1e-4 * v.abs().amax()
            assert bool((found.bound[:, :, several] <= 1.01 * hull[:, :, several] + roundings).all())
