"""The float64 oracle against autograd, against itself in tiles, and at the edges of the contract."""

import math

import pytest
import torch
from torch import Tensor

from flashverify_oracles import backward
from tests.oracles.float64_problems import INF, both, draw, results


def naive(x: dict[str, Tensor], scale: float, visible: Tensor) -> dict[str, Tensor]:
    """Softmax attention as in a textbook, differentiated by autograd; empty rows are cut off the loss."""
    q, k, v = (x[name].clone().requires_grad_() for name in "qkv")
    g = q.shape[1] // k.shape[1]
    s = scale * q @ k.repeat_interleave(g, 1).mT
    nonempty = visible.any(-1)
    s = torch.where(visible, s, -INF)
    s = torch.where(nonempty[..., None], s, 0.0)
    o = torch.softmax(s, -1) @ v.repeat_interleave(g, 1) * nonempty[..., None]
    lse = torch.logsumexp(s, -1)
    loss = (o * x["do"]).sum() + (lse * x["dlse"] * nonempty).sum()
    dq, dk, dv = torch.autograd.grad(loss, (q, k, v))
    lse = torch.where(nonempty, lse, -INF)
    return {"o": o.detach(), "lse": lse.detach(), "dq": dq, "dk": dk, "dv": dv}


@pytest.mark.parametrize("scale", [0.3, -0.7, 0.0, 3.0])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 5, 7, 4, 3), (2, 6, 2, 9, 5, 3, 8), (2, 4, 4, 1, 6, 8, 2)])
def test_agrees_with_autograd_of_the_textbook(sizes: tuple[int, ...], scale: float) -> None:
    x = draw(1, *sizes)

    got = results(*both(x, scale, x["visible"], dlse=x["dlse"]))

    for name, expected in naive(x, scale, x["visible"]).items():
        torch.testing.assert_close(got[name], expected, rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("tile", [(1, 1), (3, 2), (4, 100), (100, 4)])
def test_tiles_give_what_one_block_gives(tile: tuple[int, int]) -> None:
    x = draw(2, 2, 4, 2, 11, 13, 5, 3)

    whole = results(*both(x, 0.5, x["visible"], dlse=x["dlse"]))
    tiled = results(*both(x, 0.5, x["visible"], dlse=x["dlse"], _tile=tile))

    for name in whole:
        torch.testing.assert_close(tiled[name], whole[name], rtol=1e-13, atol=1e-13)


def test_a_callable_mask_is_asked_tile_by_tile() -> None:
    x = draw(3, 1, 2, 1, 9, 7, 4, 4)
    full = torch.arange(9)[:, None] + 1 > torch.arange(7)
    asked: set[tuple[int, int]] = set()

    def causal(rows: slice, keys: slice) -> Tensor:
        asked.add((rows.stop - rows.start, keys.stop - keys.start))
        return full[rows, keys]

    by_call = results(*both(x, 0.5, causal, _tile=(4, 3)))
    by_tensor = results(*both(x, 0.5, full, _tile=(4, 3)))

    assert asked == {(4, 3), (1, 3), (4, 1), (1, 1)}
    for name in by_call:
        assert torch.equal(by_call[name], by_tensor[name])


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 1), (4, 5, 7), (4, 1, 7), (1, 5, 7), (2, 1, 1, 7), (2, 4, 1, 1)])
@pytest.mark.parametrize("tile", [None, (2, 3)])
def test_every_broadcastable_mask_means_its_expansion(shape: tuple[int, ...], tile: tuple[int, int] | None) -> None:
    x = draw(4, 2, 4, 2, 5, 7, 3, 3)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(5)) < 0.7

    small = results(*both(x, 0.5, mask, _tile=tile))
    large = results(*both(x, 0.5, mask.expand(2, 4, 5, 7), _tile=tile))

    for name in small:
        assert torch.equal(small[name], large[name])


def test_scale_zero_gives_uniform_weights_and_no_gradient_through_the_logits() -> None:
    x = draw(8, 1, 2, 2, 4, 8, 3, 3)

    fwd, bwd = both(x, 0.0, dlse=x["dlse"])

    assert torch.equal(fwd.lse, torch.full_like(fwd.lse, math.log(8)))
    torch.testing.assert_close(fwd.o, x["v"].mean(2, keepdim=True).expand_as(fwd.o), rtol=0, atol=1e-15)
    assert not bwd.dq.any()
    assert not bwd.dk.any()


def test_conditional_mode_uses_the_given_output_and_log_sum_exp() -> None:
    x = draw(12, 1, 2, 1, 4, 5, 3, 3)
    fwd, _ = both(x, 0.5)
    given_o, given_lse = fwd.o.half(), (fwd.lse + 0.25).float()

    bwd = backward(
        x["q"], x["k"], x["v"], x["do"], scale=0.5, forward=fwd, dlse=x["dlse"], given_o=given_o, given_lse=given_lse
    )

    p = torch.exp(0.5 * x["q"] @ x["k"].mT - given_lse.double()[..., None])
    delta = (x["do"] * given_o.double()).sum(-1)
    ds = p * (x["do"] @ x["v"].mT + (x["dlse"] - delta)[..., None])
    expected = {
        "delta": delta,
        "dq": 0.5 * ds @ x["k"],
        "dk": 0.5 * (ds.mT @ x["q"]).sum(1, keepdim=True),
        "dv": (p.mT @ x["do"]).sum(1, keepdim=True),
    }
    for name, want in expected.items():
        torch.testing.assert_close(getattr(bwd, name), want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_inputs_of_any_dtype_are_taken_exactly_and_left_alone(dtype: torch.dtype) -> None:
    x = {n: t if n == "visible" else t.to(dtype) for n, t in draw(15, 1, 2, 1, 4, 5, 3, 3).items()}
    before = {n: t.clone() for n, t in x.items()}

    narrow = results(*both(x, 0.5, x["visible"], dlse=x["dlse"]))
    wide = results(
        *both({n: t if n == "visible" else t.double() for n, t in x.items()}, 0.5, x["visible"], dlse=x["dlse"])
    )

    for name in narrow:
        assert narrow[name].dtype == torch.float64
        assert torch.equal(narrow[name], wide[name])
    assert all(torch.equal(x[n], before[n]) for n in x)


def test_inputs_that_require_grad_and_expanded_gradients_are_accepted() -> None:
    x = draw(17, 1, 2, 1, 4, 5, 3, 3)
    x["q"].requires_grad_()
    x["do"] = torch.ones((), dtype=torch.float32).expand(1, 2, 4, 3)

    fwd, bwd = both(x, 0.5)

    assert not fwd.o.requires_grad
    torch.testing.assert_close(bwd.delta, fwd.o.sum(-1))


def test_memory_grows_with_the_length_not_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashverify_oracles._inputs._TILE_SCORES", 1 << 12)
    x = draw(18, 1, 1, 1, 300, 700, 2, 2)
    largest = 0

    def causal(rows: slice, keys: slice) -> Tensor:
        nonlocal largest
        largest = max(largest, (rows.stop - rows.start) * (keys.stop - keys.start))
        return torch.arange(rows.start, rows.stop)[:, None] >= torch.arange(keys.start, keys.stop)

    tiled = results(*both(x, 0.5, causal))

    assert largest <= 1 << 12
    whole = results(*both(x, 0.5, torch.ones(300, 700, dtype=torch.bool).tril(), _tile=(300, 700)))
    for name in whole:
        torch.testing.assert_close(tiled[name], whole[name], rtol=1e-12, atol=1e-12)
