"""The float64 oracle at the edges of the contract: sizes of zero, rows that see nothing, values that are not finite, refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flashverify_oracles import backward, forward
from tests.oracles.float64_problems import INF, NAN, both, draw, results


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


def test_values_at_the_largest_finite_float32_and_logits_of_1e5_stay_finite() -> None:
    x = draw(16, 1, 2, 1, 6, 6, 4, 4)
    x["q"], x["v"] = 1e5 * x["q"], torch.sign(x["v"]) * torch.finfo(torch.float32).max
    x["do"] = torch.sign(x["do"]) * torch.finfo(torch.float32).max

    assert all(t.isfinite().all() for t in results(*both(x, -1.0, dlse=x["dlse"])).values())


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
