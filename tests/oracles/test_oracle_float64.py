"""The float64 oracle against autograd, against itself in tiles, and at the edges of the contract."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from flashverify_oracles import Backward, Forward, backward, forward

INF, NAN = math.inf, math.nan


def draw(seed: int, B: int, Hq: int, Hkv: int, Sq: int, Sk: int, D: int, Dv: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = {"q": (B, Hq, Sq, D), "k": (B, Hkv, Sk, D), "v": (B, Hkv, Sk, Dv), "do": (B, Hq, Sq, Dv)}
    x = {name: torch.randn(shape, generator=g, dtype=torch.float64) for name, shape in shapes.items()}
    x["dlse"] = torch.randn(B, Hq, Sq, generator=g, dtype=torch.float64)
    x["visible"] = torch.rand(B, Hq, Sq, Sk, generator=g) < 0.6
    if Sq > 2:
        x["visible"][:, :, 1] = False
    return x


def both(x: dict[str, Tensor], scale: float, visible: Any = None, **options: Any) -> tuple[Forward, Backward]:
    inputs = (x["q"], x["k"], x["v"])
    tile = options.pop("_tile", None)
    fwd = forward(*inputs, scale=scale, visible=visible, _tile=tile)
    return fwd, backward(*inputs, x["do"], scale=scale, visible=visible, forward=fwd, _tile=tile, **options)


def results(fwd: Forward, bwd: Backward) -> dict[str, Tensor]:
    return {
        "o": fwd.o,
        "lse": fwd.lse,
        "row_max": fwd.row_max,
        "delta": bwd.delta,
        "dq": bwd.dq,
        "dk": bwd.dk,
        "dv": bwd.dv,
    }


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


@pytest.mark.parametrize(
    "sizes",
    [
        (0, 2, 1, 3, 3, 4, 4),
        (1, 0, 0, 3, 3, 4, 4),
        (1, 0, 2, 3, 3, 4, 4),
        (1, 2, 1, 0, 3, 4, 4),
        (1, 2, 1, 3, 0, 4, 4),
        (1, 2, 1, 0, 0, 4, 4),
        (1, 2, 1, 3, 3, 0, 0),
    ],
)
def test_sizes_of_zero(sizes: tuple[int, ...]) -> None:
    x = draw(6, *sizes)

    fwd, bwd = both(x, 0.5, dlse=x["dlse"])

    assert (fwd.o.shape, bwd.delta.shape) == (x["do"].shape, x["dlse"].shape)
    assert (bwd.dq.shape, bwd.dk.shape, bwd.dv.shape) == (x["q"].shape, x["k"].shape, x["v"].shape)
    if sizes[4] == 0:
        assert bool((fwd.lse == -INF).all())
        assert not fwd.o.any()
        assert not bwd.dq.any()
    assert all(not t.isnan().any() for t in results(fwd, bwd).values())


def test_rows_that_see_nothing_are_exactly_zero() -> None:
    x = draw(7, 1, 2, 1, 5, 4, 3, 3)
    x["visible"][:, :, 1:3] = False
    x["do"][:, :, 1] = NAN
    x["dlse"][:, :, 2] = INF

    fwd, bwd = both(x, 0.5, x["visible"], dlse=x["dlse"], given_o=torch.full_like(x["do"], 2.0))

    empty = slice(1, 3)
    assert bool((fwd.lse[:, :, empty] == -INF).all())
    assert bool((fwd.row_max[:, :, empty] == -INF).all())
    for t in (fwd.o, bwd.delta, bwd.dq):
        assert not t[:, :, empty].any()
    assert all(not t.isnan().any() for t in results(fwd, bwd).values())


def test_scale_zero_gives_uniform_weights_and_no_gradient_through_the_logits() -> None:
    x = draw(8, 1, 2, 2, 4, 8, 3, 3)

    fwd, bwd = both(x, 0.0, dlse=x["dlse"])

    assert torch.equal(fwd.lse, torch.full_like(fwd.lse, math.log(8)))
    torch.testing.assert_close(fwd.o, x["v"].mean(2, keepdim=True).expand_as(fwd.o), rtol=0, atol=1e-15)
    assert not bwd.dq.any()
    assert not bwd.dk.any()


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("tile", [None, (2, 2)])
def test_what_no_row_sees_contributes_nothing_whatever_it_holds(poison: float, tile: tuple[int, int] | None) -> None:
    x = draw(9, 2, 4, 2, 5, 7, 3, 3)
    x["visible"][..., 2] = False
    x["visible"][..., 6] = False
    clean = results(*both(x, 0.5, x["visible"], dlse=x["dlse"], _tile=tile))
    for name, index in (("k", 2), ("v", 2), ("v", 6), ("q", 1), ("do", 1), ("dlse", 1)):
        x[name][:, :, index] = poison  # row 1 sees nothing

    dirty = results(*both(x, 0.5, x["visible"], dlse=x["dlse"], _tile=tile))

    for name in clean:
        assert torch.equal(dirty[name], clean[name]), name


def reached(t: Tensor) -> list[int]:
    """Indices along dimension 2 that hold a NaN; every one must be all NaN there."""
    nan = t[0, 0].isnan()
    return torch.nonzero(nan.reshape(nan.shape[0], -1).any(-1)).flatten().tolist()


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize(
    ("name", "index", "forward_rows", "dq_rows", "dk_keys", "dv_keys"),
    [
        ("q", 1, [1], [1], [0, 1], [0, 1]),
        ("k", 2, [2, 3], [2, 3], [0, 1, 2, 3], [0, 1, 2, 3]),
        ("v", 3, [3], [3], [0, 1, 2, 3], []),
        ("do", 1, [], [1], [0, 1], [0, 1]),
        ("dlse", 2, [], [2], [0, 1, 2], []),
    ],
)
def test_a_visible_non_finite_value_reaches_its_rows_and_their_keys_only(
    poison: float,
    name: str,
    index: int,
    forward_rows: list[int],
    dq_rows: list[int],
    dk_keys: list[int],
    dv_keys: list[int],
) -> None:
    x = draw(10, 1, 1, 1, 4, 4, 3, 3)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    clean = results(*both(x, 0.5, causal, dlse=x["dlse"]))
    x[name][0, 0, index] = poison

    dirty = results(*both(x, 0.5, causal, dlse=x["dlse"]))

    assert reached(dirty["o"]) == forward_rows
    assert reached(dirty["lse"]) == (forward_rows if name in "qk" else [])
    assert (reached(dirty["dq"]), reached(dirty["dk"]), reached(dirty["dv"])) == (dq_rows, dk_keys, dv_keys)
    for output, t in dirty.items():
        assert torch.equal(t[~t.isnan()], clean[output][~t.isnan()]), output


def test_a_non_finite_channel_of_v_reaches_that_channel_of_o() -> None:
    x = draw(11, 1, 1, 1, 4, 4, 3, 3)
    x["v"][0, 0, 2, 1] = NAN

    o = forward(x["q"], x["k"], x["v"], scale=0.5, visible=torch.ones(4, 4, dtype=torch.bool).tril()).o

    assert torch.nonzero(o[0, 0].isnan()).tolist() == [[2, 1], [3, 1]]


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


def test_a_given_log_sum_exp_of_minus_infinity_silences_its_row() -> None:
    x = draw(13, 1, 1, 1, 4, 5, 3, 3)
    fwd, _ = both(x, 0.5)
    given = fwd.lse.clone()
    given[0, 0, 2] = -INF

    silenced = backward(x["q"], x["k"], x["v"], x["do"], scale=0.5, forward=fwd, given_lse=given)
    seen = torch.ones(4, 5, dtype=torch.bool)
    seen[2] = False
    _, expected = both(x, 0.5, seen)

    assert not silenced.dq[0, 0, 2].any()
    for name in ("dq", "dk", "dv"):
        torch.testing.assert_close(getattr(silenced, name), getattr(expected, name), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_given_log_sum_exp_that_is_no_number_makes_its_row_nan(value: float) -> None:
    x = draw(14, 1, 1, 1, 4, 4, 3, 3)
    fwd, _ = both(x, 0.5)
    given = fwd.lse.clone()
    given[0, 0, 1] = value

    bwd = backward(x["q"], x["k"], x["v"], x["do"], scale=0.5, forward=fwd, given_lse=given, visible=torch.eye(4) > 0)

    assert (reached(bwd.dq), reached(bwd.dk), reached(bwd.dv)) == ([1], [1], [1])


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


def test_values_at_the_largest_finite_float32_and_logits_of_1e5_stay_finite() -> None:
    x = draw(16, 1, 2, 1, 6, 6, 4, 4)
    x["q"], x["v"] = 1e5 * x["q"], torch.sign(x["v"]) * torch.finfo(torch.float32).max
    x["do"] = torch.sign(x["do"]) * torch.finfo(torch.float32).max

    assert all(t.isfinite().all() for t in results(*both(x, -1.0, dlse=x["dlse"])).values())


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


Q, K = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 5, 4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": [1.0]}, TypeError, r"q must be a tensor, got \[1.0\]"),
        ({"q": Q.int()}, TypeError, "q must have a floating dtype, got torch.int32"),
        ({"q": Q[0]}, ValueError, r"q must have 4 dimensions, got \(2, 3, 4\)"),
        ({"k": K[:, :, :, :3]}, ValueError, "must agree, got q"),
        ({"v": K.expand(2, 2, 5, 4)}, ValueError, "must agree"),
        ({"q": torch.zeros(1, 3, 3, 4)}, ValueError, "multiple of the heads of k, got Hq=3, Hkv=2"),
        ({"k": K.to("meta")}, ValueError, "k must be on the device of q, cpu, got meta"),
        ({"scale": NAN}, ValueError, "scale must be finite, got nan"),
        ({"scale": "1"}, TypeError, "scale must be a float, got '1'"),
        ({"scale": True}, TypeError, "scale must be a float, got True"),
        ({"visible": torch.ones(3, 5)}, TypeError, "visible must have dtype torch.bool, got torch.float32"),
        ({"visible": torch.ones(4, 5) > 0}, ValueError, r"visible must broadcast to \(1, 2, 3, 5\), got \(4, 5\)"),
        ({"visible": (torch.ones(3, 5) > 0).to("meta")}, ValueError, "visible must be on the device of q"),
        ({"visible": 3}, TypeError, "visible must be None, a bool tensor or a callable"),
        ({"visible": lambda rows, keys: None}, TypeError, "visible must give a bool tensor, got None"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"q": Q, "k": K, "v": K, "scale": 1.0, "visible": None} | change

    with pytest.raises(error, match=message):
        forward(arguments["q"], arguments["k"], arguments["v"], scale=arguments["scale"], visible=arguments["visible"])


def test_bad_gradients_are_named() -> None:
    fwd = forward(Q, K, K, scale=1.0)

    with pytest.raises(ValueError, match=r"do must have the shape \(1, 2, 3, 4\), got \(1, 2, 3, 5\)"):
        backward(Q, K, K, torch.zeros(1, 2, 3, 5), scale=1.0, forward=fwd)
    with pytest.raises(ValueError, match=r"given_lse must have the shape \(1, 2, 3\)"):
        backward(Q, K, K, Q, scale=1.0, forward=fwd, given_lse=torch.zeros(3))
