"""A float64 attention written from the definition, and the comparison that the kernel tests share."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from flashverify.interpreter import active, session
from flashverify_kernels import Configs, LaunchConfig, TreeMask, attention
from flashverify_kernels.runtime import INTERPRETED

OUTPUTS = ("o", "lse", "dq", "dk", "dv")
DEVICE = "cpu" if INTERPRETED else "cuda"
TOLERANCE = {torch.float32: 4e-6, torch.float16: 2e-3}


def tiles(block_m: int, block_n: int) -> Configs:
    config = LaunchConfig(block_m=block_m, block_n=block_n)
    return Configs(forward=config, dq=config, dkdv=config)


def visibility(
    batch: int,
    sq: int,
    sk: int,
    causal: str | None = None,
    lengths: Sequence[int] | None = None,
    parents: Sequence[int] | None = None,
    window: tuple[int | None, int | None] = (None, None),
    queries: Sequence[int] | None = None,
    prefix: Sequence[int] | None = None,
) -> torch.Tensor:
    """`[B, 1, Sq, Sk]` bool, pair by pair."""
    see = torch.ones(batch, 1, sq, sk, dtype=torch.bool, device="cpu")
    ancestors: list[set[int]] = []
    for node, parent in enumerate(parents or ()):
        ancestors.append({node} | (ancestors[parent] if parent >= 0 else set()))
    for b in range(batch):
        n = sk if lengths is None else lengths[b]
        m = sq if queries is None else queries[b]
        shift = n - m if causal == "bottom-right" else 0
        left, right = (math.inf if side is None else side for side in window)
        for i in range(sq):
            for j in range(sk):
                see[b, 0, i, j] = (
                    i < m
                    and j < n
                    and (causal is None or j <= i + shift or (prefix is not None and j < prefix[b]))
                    and i + shift - left <= j <= i + shift + right
                    and (parents is None or j < sk - sq or j - (sk - sq) in ancestors[i])
                )
    return see.to(DEVICE)


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    see: torch.Tensor,
    scale: float,
    do: torch.Tensor,
    dlse: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """O, LSE and gradients in float64, with the softmax and its derivative written out."""
    q, k, v, do, dlse = (x.double() for x in (q, k, v, do, dlse))
    group = q.shape[1] // max(k.shape[1], 1)
    ke, ve = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = torch.where(see, scale * q @ ke.transpose(-1, -2), -math.inf)
    lse = torch.logsumexp(s, -1)
    p = torch.where(see, torch.exp(s - torch.where(lse.isinf(), 0.0, lse)[..., None]), 0.0)
    o = p @ ve
    ds = p * (do @ ve.transpose(-1, -2) - (do * o).sum(-1, keepdim=True) + dlse[..., None])
    dk = scale * ds.transpose(-1, -2) @ q
    dv = p.transpose(-1, -2) @ do
    return {
        "o": o,
        "lse": lse,
        "dq": scale * ds @ ke,
        "dk": dk.reshape(k.shape[0], k.shape[1], group, *k.shape[2:]).sum(2),
        "dv": dv.reshape(v.shape[0], v.shape[1], group, *v.shape[2:]).sum(2),
    }


@dataclass
class Case:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor
    dlse: torch.Tensor

    def run(self, **options: Any) -> dict[str, torch.Tensor]:
        inputs = [x.detach().requires_grad_() for x in (self.q, self.k, self.v)]
        o, lse = attention(*inputs, return_lse=True, **options)
        torch.autograd.backward([o, lse], [self.do, self.dlse])
        grads = [x.grad for x in inputs]
        assert all(g is not None for g in grads)
        return dict(zip(OUTPUTS, [o.detach(), lse.detach(), *grads], strict=True))

    def check(self, see: torch.Tensor, scale: float | None = None, **options: Any) -> dict[str, torch.Tensor]:
        """Run the kernels, compare every output with the reference, return the outputs."""
        got = self.run(scale=scale, **options)
        wanted = reference(
            self.q, self.k, self.v, see, 1 / math.sqrt(self.q.shape[-1]) if scale is None else scale, self.do, self.dlse
        )
        empty = ~see.any(-1).expand(got["lse"].shape)
        assert torch.equal(got["lse"] == -math.inf, empty)
        assert bool((got["o"][empty] == 0).all())
        assert bool((got["dq"][empty] == 0).all())
        for name in OUTPUTS:
            x, y = got[name].double(), wanted[name]
            assert x.shape == y.shape
            x, y = x[y != -math.inf], y[y != -math.inf]
            size = max(1.0, float(y.abs().max())) if y.numel() else 1.0
            error = float((x - y).abs().max()) if y.numel() else 0.0
            assert error <= TOLERANCE[self.q.dtype] * size, f"{name}: error {error:.2e} at magnitude {size:.2e}"
        return got


@pytest.fixture
def opens_sessions() -> None:
    """Marks a test that opens its own sessions, which do not nest: it begins in Triton's own interpreter."""


@pytest.fixture(scope="module")
def shared_session() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture(autouse=True)
def in_lockstep(request: pytest.FixtureRequest, shared_session: ExitStack) -> None:
    """Interpreted programs run side by side, many times as fast; `--stock` runs them in Triton's own interpreter."""
    if not INTERPRETED or request.config.getoption("--stock"):
        return
    if "opens_sessions" in request.fixturenames:
        shared_session.close()
    elif active() is None:
        shared_session.enter_context(session())


@pytest.fixture(autouse=True)
def on_the_device() -> Iterator[None]:
    with torch.device(DEVICE):
        yield


@pytest.fixture
def make_case() -> Callable[..., Case]:
    def make(
        batch: int = 1,
        heads: int = 1,
        kv_heads: int | None = None,
        sq: int = 16,
        sk: int = 16,
        d: int = 16,
        dv: int | None = None,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> Case:
        rng = torch.Generator("cpu").manual_seed(seed)
        kv_heads, dv = kv_heads if kv_heads is not None else heads, dv or d

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=rng, device="cpu").to(DEVICE)

        return Case(
            draw(batch, heads, sq, d).to(dtype),
            draw(batch, kv_heads, sk, d).to(dtype),
            draw(batch, kv_heads, sk, dv).to(dtype),
            draw(batch, heads, sq, dv).to(dtype),
            draw(batch, heads, sq),
        )

    return make


@pytest.fixture
def see() -> Callable[..., torch.Tensor]:
    return visibility


@pytest.fixture
def blocks() -> Callable[[int, int], Configs]:
    return tiles


@pytest.fixture
def tree() -> Callable[[Sequence[int]], TreeMask]:
    return functools.partial(TreeMask.from_parents, device=DEVICE)
