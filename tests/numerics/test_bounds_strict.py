"""The strict bounds of O and dV (docs/bounds.md, section 14): sound under attack, sharper than the ordinary ones, silent where nothing is derived."""

import math

import pytest
import torch
from torch import Tensor

from flashverify.numerics import BoundInputs, Form, forward_bounds
from flashverify_oracles import float64
from tests.fast_tier import fast_one_in
from tests.numerics.emulator import F32, TINY, Emulator
from tests.numerics.ratios import measure
from tests.numerics.regimes import draw

DTYPES = {torch.float16: 11, torch.bfloat16: 8}
"""And their bits."""
both = pytest.mark.parametrize("dtype", DTYPES, ids=("fp16", "bf16"))


class Attacker(Emulator):
    """A kernel whose exponential errs by the most that is allowed, up or down key by key, and whose O is not rounded."""

    signs: Tensor
    at: int = 0

    def ex2(self, t: Tensor) -> Tensor:
        if t.shape[-1] == 1:
            return super().ex2(t)
        r = torch.exp2(t.double()).to(F32)
        signs = self.signs[self.at : self.at + t.shape[-1]]
        self.at += t.shape[-1]
        spacing = torch.nextafter(r, torch.full_like(r, math.inf)) - r
        r = torch.where((r > TINY) & (t != 0), r + 2 * signs * spacing, r)
        return torch.where(r < TINY, 0.0, r)


def at_ties(dtype: torch.dtype, N: int, spread: float, order: str, gen: torch.Generator) -> tuple[Tensor, Tensor]:
    """q `[1, 1, 4, 16]` and k `[1, 1, N, 16]` whose weights lie half-way between two numbers of the dtype."""
    bits = DTYPES[dtype]
    weight = torch.exp2(-spread * torch.rand(N, generator=gen, dtype=torch.float64))
    unit = torch.exp2(torch.floor(torch.log2(weight)) - bits + 1)
    logit = torch.log(unit * (torch.floor(weight / unit) + 0.5))
    logit[0] = 0.0
    if order == "ascending":
        logit = logit.sort().values
    elif order == "climbing":
        logit = logit + torch.arange(N) / N * 3 - 3
    q, k, rest = torch.zeros(4, 16, dtype=torch.float64), torch.zeros(N, 16, dtype=torch.float64), logit.clone()
    for c in range(-(-30 // bits)):  # a logit of 30 bits as a sum of numbers of the dtype
        q[:, c] = 2.0 ** (-bits * c)
        k[:, c] = (rest * 2.0 ** (bits * c)).to(dtype).double()
        rest = rest - k[:, c] * q[0, c]
    return q.to(dtype)[None, None], k.to(dtype)[None, None]


@both
@pytest.mark.parametrize("order", ["any", "ascending", "climbing"])
def test_attacks_on_the_rounding_of_the_weights_stay_below(dtype: torch.dtype, order: str) -> None:
    reached = 0.0
    for n, (N, block, spread) in enumerate(
        [(17, 16, 0.5), (64, 16, 4), (200, 64, 4), (200, 16, 20), (1024, 64, 4), (1024, 16, 0.5)]
    ):
        for sign in (1.0, -1.0):
            gen = torch.Generator().manual_seed(n)
            q, k = at_ties(dtype, N, spread, order, gen)
            v = torch.where(torch.rand(N, 8, generator=gen) < 0.5, -1.0, 1.0)
            v[:, 1], v[:, 2] = 0.0, 1.0
            v[int((q @ k.mT).double()[0, 0, 0].argmax()), 1] = 1.0
            kernel = Attacker(dtype=dtype, scale=1.0, block_n=block)
            kernel.signs = torch.sign(v[:, 0]) * sign
            v = v.to(dtype)[None, None]
            o, _ = kernel.part(q, k, v, torch.ones(4, N, dtype=torch.bool))
            truth = float64.forward(q, k, v, scale=1.0)
            form = Form(
                block_n=block, key_order="ascending", gap_c=1.0, kappa=2.0, architecture="ieee", out_dtype="fp32"
            )
            found = forward_bounds(
                BoundInputs.of(q, k, v, scale=1.0, dtype=dtype, form=form), truth.o, truth.lse
            ).strict
            assert found is not None
            ratio = float(((o.double() - found.value).abs() / found.bound.total).max())
            assert ratio <= 1
            reached = max(reached, ratio)
    if order == "any":
        assert reached > 0.8  # the attack is one: it comes close to the bound


SHAPES = (
    (33, 48, 16, None),
    (33, 80, 32, "causal"),
    (16, 256, 64, "window"),
    (5, 1024, 64, None),
    (33, 40, 64, "causal"),
)


@pytest.mark.one_in(3)
@both
@pytest.mark.parametrize(
    "regime",
    fast_one_in(
        4, ["normal", "logits1e2", "logits1e4", "near_ties", "v_cancels", "one_hot", "zeros", "ascending"], kept=2
    ),
)
def test_a_correct_kernel_stays_below(dtype: torch.dtype, regime: str) -> None:
    seen = set()
    for seed, (M, N, block, mask) in enumerate(SHAPES):
        vis = None if mask is None else torch.ones(M, N, dtype=torch.bool).tril(N - M)
        if mask == "window":
            vis = vis & torch.ones(M, N, dtype=torch.bool).triu(N - M - 20)
        q, k, v, do = draw(regime, dtype, (1, 4, 2, M, N, 32, 16), seed)
        kernel = Emulator(dtype=dtype, scale=32**-0.5, block_n=block, ulps=seed % 3 - 1)
        form = Form(block_n=block, key_order="ascending", gap_c=1.0, kappa=2.0, architecture="ieee")
        ratios = measure(kernel, q, k, v, do, scale=32**-0.5, vis=vis, form=form)
        seen |= ratios.keys()
        assert all(ratios.get(name, 0.0) <= 1 for name in ("o!", "dv!")), ratios
    assert regime not in ("normal", "v_cancels", "zeros") or seen >= {"o!", "dv!"}


def bounds_of(dtype: torch.dtype, form: Form, **features: object) -> tuple[Tensor, Tensor]:
    """B of O, and the strict one (empty where there is none), of ordinary values, N = 256, d = 64, causal."""
    q, k, v, _ = draw("normal", dtype, (1, 2, 2, 256, 256, 64, 64), 4)
    asked = {"scale": 0.125, "visible": torch.ones(256, 256, dtype=torch.bool).tril(), **features}
    truth = float64.forward(q, k, v, **asked)
    F = forward_bounds(BoundInputs.of(q, k, v, dtype=dtype, form=form, **asked), truth.o, truth.lse)
    return F.o.bound, torch.empty(0) if F.strict is None else F.strict.bound.bound


@pytest.mark.parametrize(("dtype", "share"), [(torch.bfloat16, 0.12), (torch.float16, 0.3)], ids=("bf16", "fp16"))
def test_it_is_severalfold_sharper_for_ordinary_values(dtype: torch.dtype, share: float) -> None:
    form = Form(block_n=64, key_order="ascending", gap_c=1.0, kappa=2.0, architecture="sm_90")
    ordinary, strict = bounds_of(dtype, form)

    assert bool((strict <= ordinary).all())
    assert float((strict / ordinary).median()) < share


@pytest.mark.parametrize(
    "change",
    [
        {"key_order": "unknown"},
        {"n_splits": 2},
        {"rescale_threshold": 8.0},
        {"max_source": "apart"},
        {"normalise": "every_block"},
        {"row_sum": "rounded"},
        {"partial_dtype": "bf16"},
    ],
    ids=str,
)
def test_a_form_that_is_not_covered_has_none(change: dict[str, object]) -> None:
    form = Form(**{"block_n": 64, "key_order": "ascending", **change})  # type: ignore[arg-type]
    assert bounds_of(torch.bfloat16, form)[1].numel() == 0


def test_dropout_and_fp32_have_none() -> None:
    form = Form(block_n=64, key_order="ascending")
    kept = {"keep": torch.ones(256, 256, dtype=torch.bool), "dropout": 0.5}
    assert bounds_of(torch.bfloat16, form, **kept)[1].numel() == 0
    assert bounds_of(torch.float32, form)[1].numel() == 0


@pytest.mark.parametrize("feature", ["softcap", "biases", "sink"])
def test_features_are_covered(feature: str) -> None:
    value = {"softcap": 3.0, "biases": (torch.linspace(-2, 2, 256).expand(256, 256),), "sink": torch.tensor([1.0, 9.0])}
    ordinary, strict = bounds_of(torch.bfloat16, Form(block_n=64, key_order="ascending"), **{feature: value[feature]})
    assert float((strict / ordinary).median()) < 0.5


class Narrow(Emulator):
    """A kernel that rounds its accumulator, or the sum that makes dV, to the input dtype after every tile."""

    def dot(self, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        if c is not None:
            return super().dot(a, b, c).to(self.dtype).to(F32)
        if a.dtype != b.dtype or a.shape[-1] != b.shape[-2] or a.dtype != self.dtype:
            return super().dot(a, b)
        total = torch.zeros(())
        for start in range(0, a.shape[-1], 16):
            part = slice(start, start + 16)
            total = (total + super().dot(a[..., part], b[..., part, :])).to(self.dtype).to(F32)
        return total


@both
@pytest.mark.parametrize(("kernel", "most"), [(Emulator, 1.0), (Narrow, math.inf)], ids=("clean", "narrow"))
def test_a_narrow_accumulator_of_o_is_seen_by_the_strict_bound_alone(
    dtype: torch.dtype, kernel: type[Emulator], most: float
) -> None:
    q, k, v, do = draw("normal", dtype, (1, 2, 2, 64, 64, 16, 32), 3)
    form = Form(block_n=16, key_order="ascending", gap_c=1.0, kappa=2.0, architecture="ieee")
    ratios = measure(kernel(dtype=dtype, scale=0.25), q, k, v, do, scale=0.25, form=form)

    assert ratios["o"] < 1
    for name in ("o!", "dv!"):
        assert (ratios[name] > 1.2) if most == math.inf else (ratios[name] <= most)


def test_the_order_of_tiles_needs_their_size() -> None:
    with pytest.raises(ValueError, match="key_order='ascending' needs block_n"):
        Form(key_order="ascending")
    with pytest.raises(ValueError, match="key_order='descending' is not a valid form value"):
        Form(key_order="descending", block_n=16)
