"""Softcap, biases, sinks and dropout in float64: against autograd, against itself in tiles, and where they are extreme."""

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles.features import FEATURES, SIZES, both, draw, naive, options_of, results

INF, NAN = math.inf, math.nan
SUBSETS = [(), *((name,) for name in FEATURES), ("bias", "alibi"), ("softcap", "sink", "dropout"), FEATURES]


def close(got: Tensor, expected: Tensor, name: str, tolerance: float) -> None:
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, msg=lambda m: f"{name}: {m}")


@pytest.mark.parametrize("names", SUBSETS)
@pytest.mark.parametrize("sizes", SIZES)
def test_agrees_with_autograd_of_whole_matrices(names: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    x, options = draw(1, sizes), options_of(names, 2, sizes)
    shape = (sizes[0], sizes[1], *sizes[3:5])

    got = results(*both(x, 0.7, options, bias_shape=shape))

    for name, expected in naive(x, 0.7, options, shape).items():
        close(got[name], expected, name, 1e-12)


@pytest.mark.parametrize("shape", [(), (6,), (3, 1), (1, 1, 3, 6), (2, 1, 3, 6), (1, 4, 3, 6), (4, 1, 1), (2, 1, 1, 1)])
@pytest.mark.parametrize("tile", [None, (2, 4)])
def test_the_gradient_of_a_bias_is_summed_to_its_shape(shape: tuple[int, ...], tile: tuple[int, int] | None) -> None:
    sizes = (2, 4, 2, 3, 6, 5, 2)
    x, options = draw(3, sizes), options_of({"softcap", "sink"}, 4, sizes)

    _, bwd = both(x, 0.7, options, bias_shape=shape, _tile=tile)

    assert bwd.dbias is not None
    close(bwd.dbias, naive(x, 0.7, options, shape)["dbias"], "dbias", 1e-13)


@pytest.mark.parametrize("tile", [(1, 1), (3, 2), (4, 100), (100, 4)])
@pytest.mark.parametrize("conditional", [False, True])
def test_tiles_give_what_one_block_gives(tile: tuple[int, int], conditional: bool) -> None:
    sizes = (2, 4, 2, 11, 13, 5, 3)
    x, options = draw(5, sizes), options_of(FEATURES, 6, sizes)
    more: dict[str, Any] = {"bias_shape": (1, 4, 11, 13)}
    if conditional:
        fwd, _ = both(x, 0.5, options)
        more |= {"given_o": fwd.o.half(), "given_lse": fwd.lse.float()}

    whole = results(*both(x, 0.5, options, **more))
    tiled = results(*both(x, 0.5, options, **more, _tile=tile))

    assert whole.keys() == tiled.keys()
    for name in whole:
        close(tiled[name], whole[name], name, 1e-13)


@pytest.mark.parametrize("argument", ["biases", "keep"])
def test_a_callable_means_its_tensor(argument: str) -> None:
    sizes = (2, 4, 2, 5, 7, 3, 3)
    x, options = draw(7, sizes), options_of(("bias", "dropout"), 8, sizes)
    options["biases"] = [torch.randn(2, 4, 5, 7, generator=torch.Generator().manual_seed(1))]
    full = options["keep"] if argument == "keep" else options["biases"][0]

    def called(rows: slice, keys: slice) -> Tensor:
        tile: Tensor = full[:, :, rows, keys]
        return tile

    by_call = results(*both(x, 0.5, options | {argument: called if argument == "keep" else [called]}, _tile=(2, 3)))
    by_tensor = results(*both(x, 0.5, options, _tile=(2, 3)))

    for name in by_call:
        assert torch.equal(by_call[name], by_tensor[name]), name


def test_a_sink_is_a_key_with_no_value() -> None:
    # One more key with k = 0 and v = 0 has logit bias = sink; what its row of V would get as a gradient is not asked for.
    sizes = (1, 2, 2, 3, 4, 3, 3)
    x, sink = draw(9, sizes), torch.tensor([0.7, -1.3])
    longer = {name: torch.cat([x[name], torch.zeros(1, 2, 1, 3, dtype=torch.float64)], 2) for name in "kv"}
    bias = torch.cat([torch.zeros(1, 2, 3, 4), sink.view(1, 2, 1, 1).expand(1, 2, 3, 1)], -1)
    x["visible"][:] = True

    fwd, bwd = both(x, 0.5, {"sink": sink})
    more = x | longer | {"visible": torch.ones(3, 5, dtype=torch.bool)}
    fwd_key, bwd_key = both(more, 0.5, {"biases": [bias]}, bias_shape=(1, 2, 3, 5))

    close(fwd.o, fwd_key.o, "o", 1e-14)
    close(fwd.lse, fwd_key.lse, "lse", 1e-14)
    close(bwd.dq, bwd_key.dq, "dq", 1e-14)
    assert bwd.dsink is not None
    assert bwd_key.dbias is not None
    close(bwd.dsink, bwd_key.dbias[0, :, :, 4].sum(-1), "dsink", 1e-14)


def test_a_dominating_sink_takes_every_weight() -> None:
    x = draw(10, (1, 2, 1, 3, 4, 3, 3))

    fwd, bwd = both(x, 0.5, {"sink": torch.full((2,), 1e4)})

    seen = x["visible"].any(-1)
    assert not fwd.o.any()
    assert torch.equal(fwd.lse, torch.where(seen, 1e4, -INF).double())
    assert bool((fwd.row_max[seen] < 100).all())
    assert bwd.dsink is not None
    # P of the sink is 1 and delta is 0: the gradient of the sink is that of the log-sum-exp.
    close(bwd.dsink, (x["dlse"] * seen).sum((0, 2)), "dsink", 1e-14)
    for name in ("dq", "dk", "dv"):
        assert not getattr(bwd, name).any()


def test_a_sink_far_below_the_logits_is_none() -> None:
    x = draw(11, (1, 2, 1, 3, 4, 3, 3))

    sunk, plain = (results(*both(x, 0.5, options)) for options in ({"sink": torch.full((2,), -1e4)}, {}))

    assert not sunk.pop("dsink").any()
    for name in plain:
        assert torch.equal(sunk[name], plain[name]), name


def test_rows_that_see_nothing_stay_empty_with_every_feature() -> None:
    sizes = (2, 4, 2, 5, 4, 3, 3)
    x, options = draw(12, sizes), options_of(FEATURES, 13, sizes)
    x["visible"][:, :, 1:3] = False
    clean = both(x, 0.5, options, bias_shape=(2, 4, 5, 4))[1]
    x["do"][:, :, 1], x["dlse"][:, :, 2], x["q"][:, :, 1] = NAN, INF, NAN

    given = {"given_o": torch.ones_like(x["do"]), "given_lse": torch.zeros_like(x["dlse"])}
    fwd, bwd = both(x, 0.5, options, bias_shape=(2, 4, 5, 4))
    _, conditional = both(x, 0.5, options, bias_shape=(2, 4, 5, 4), **given)

    assert bool((fwd.lse[:, :, 1:3] == -INF).all())
    for t in (fwd.o, bwd.delta, bwd.dq, bwd.dbias, conditional.delta, conditional.dq, conditional.dbias):
        assert t is not None
        assert not t[:, :, 1:3].any()
    assert bwd.dsink is not None
    assert clean.dsink is not None
    assert torch.equal(bwd.dsink, clean.dsink)
    assert conditional.dsink is not None
    assert bool(conditional.dsink.isfinite().all())


@pytest.mark.parametrize("cap", [1e-3, 1e30])
def test_softcap_at_its_ends(cap: float) -> None:
    x = draw(14, (1, 2, 1, 3, 4, 3, 3))
    if cap == 1e30:  # tanh(x) = x
        capped, plain = (results(*both(x, 0.5, options)) for options in ({"softcap": cap}, {}))
        for name in plain:
            close(capped[name], plain[name], name, 1e-14)
        return
    # Every logit is +-cap, and its slope 4 exp(-2 |t| / cap) is far below the rounding of 1 - tanh^2, yet not 0.
    x["q"], x["k"] = x["q"].sign() * 0.1, x["k"].sign() * 0.1

    fwd, bwd = both(x, 1.0, {"softcap": cap})

    products = x["q"] @ x["k"].mT
    expected = 4 * torch.exp(-2 * products.abs() / cap)
    assert float(expected.max()) < 2.0**-25
    logits = torch.where(x["visible"], cap * products.sign(), -INF)
    seen = x["visible"].any(-1)
    close(fwd.lse[seen], torch.logsumexp(logits, -1)[seen], "lse", 1e-12)
    assert bool((bwd.dq.abs().amax(-1) > 0)[seen].any())
    assert float(bwd.dq.abs().max()) < 1e3 * float(expected.max())


def test_no_cap_and_a_cap_of_zero_are_the_same() -> None:
    x = draw(15, (1, 2, 1, 3, 4, 3, 3))

    assert torch.equal(both(x, 0.5, {"softcap": 0.0})[1].dq, both(x, 0.5, {})[1].dq)


def test_no_size_needs_to_be_positive() -> None:
    for sizes in [(0, 2, 1, 3, 3, 4, 4), (1, 0, 0, 3, 3, 4, 4), (1, 0, 2, 3, 3, 4, 4), (1, 2, 1, 0, 3, 4, 4), (1, 2, 1, 3, 0, 4, 4), (1, 2, 1, 3, 3, 0, 0)]:  # fmt: skip
        x = draw(16, sizes)
        options = options_of(("softcap", "alibi", "sink", "dropout"), 17, sizes)
        shape = (sizes[0], sizes[1], *sizes[3:5])
        options["biases"].append(torch.zeros(shape))

        got = results(*both(x, 0.5, options, bias_shape=shape))

        assert got["dsink"].shape == (sizes[1],)
        assert got["dbias"].shape == shape
        assert all(not t.isnan().any() for t in got.values())
        if sizes[4] == 0:
            assert bool((got["lse"] == -INF).all())
            assert not got["dsink"].any()


def test_memory_of_a_callable_bias_is_that_of_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashverify_oracles._inputs._TILE_SCORES", 1 << 12)
    x = draw(18, (1, 1, 1, 300, 400, 2, 2))
    largest = 0

    def far(rows: slice, keys: slice) -> Tensor:
        nonlocal largest
        largest = max(largest, (rows.stop - rows.start) * (keys.stop - keys.start))
        return -0.01 * (torch.arange(rows.start, rows.stop)[:, None] - torch.arange(keys.start, keys.stop)).abs()

    both(x, 0.5, {"biases": [far]})

    assert largest <= 1 << 12


def test_random_combinations_agree_with_autograd() -> None:
    rng = random.Random(19)
    for case in range(40):
        sizes = rng.choice(SIZES)
        names = {name for name in FEATURES if rng.random() < 0.5}
        x, options = draw(case, sizes), options_of(names, case, sizes)
        shape = (rng.choice([1, sizes[0]]), rng.choice([1, sizes[1]]), *sizes[3:5])
        scale = rng.choice([0.0, 0.3, -1.0, 4.0])

        got = results(*both(x, scale, options, bias_shape=shape))

        for name, expected in naive(x, scale, options, shape).items():
            close(got[name], expected, f"case {case} {sorted(names)} {name}", 1e-12)
