"""The mpmath oracle against closed forms: two keys, tiny results, sums that cancel, precision that grows."""

from typing import Any

import pytest
import torch
from mpmath import mp
from torch import Tensor

from flashverify_oracles import (
    PrecisionExhausted,
    exact_attention,
    round_array,
)
from tests.oracles.exact_problems import draw


def tensor(*values: Any) -> Tensor:
    """One head of one batch: rows of vectors."""
    return torch.tensor(values, dtype=torch.float64)[None, None]


def test_one_visible_key_copies_v_and_has_no_slope() -> None:
    q, k, v, do = tensor([1.5, -2.0]), tensor([0.3, 0.7]), tensor([0.1, -7.0]), tensor([2.0, 0.25])

    exact = exact_attention(q, k, v, do, scale=0.3)

    assert [float(x) for x in exact.o.flat] == [0.1, -7.0]
    assert [float(x) for x in exact.dv.flat] == [2.0, 0.25]
    assert not any(exact.dq.flat)
    assert not any(exact.dk.flat)
    assert exact.precision == 320


def test_closed_form_of_two_keys() -> None:
    # S = (0, log 3) cannot be written exactly, but S = (0, 1) can: weights 1/(1+e) and e/(1+e).
    exact = exact_attention(
        tensor([1.0]),
        tensor([0.0], [1.0]),
        tensor([0.0], [1.0]),
        tensor([1.0]),
        scale=1.0,
        dlse=torch.tensor([[[2.0]]]),
    )

    with mp.workprec(200):
        w = mp.e / (1 + mp.e)
        slope = w * (1 - w)
        expected = {
            "o": [w],
            "lse": [mp.log(1 + mp.e)],
            "delta": [w],
            "dq": [slope + 2 * w],
            "dk": [-slope + 2 * (1 - w), slope + 2 * w],
            "dv": [1 - w, w],
        }
        for name, array in exact.arrays():
            for got, want in zip(array.flat, expected[name], strict=True):
                assert abs(got - want) <= mp.ldexp(1, -180), name


def test_tiny_results_keep_their_relative_accuracy() -> None:
    exact = exact_attention(tensor([1.0]), tensor([0.0], [-690.0]), tensor([0.0], [1.0]), scale=1.0)

    with mp.workprec(200):
        w = mp.exp(-690)
        assert abs(exact.lse.item() / mp.log1p(w) - 1) < mp.ldexp(1, -90)
        assert abs(exact.o.item() / (w / (1 + w)) - 1) < mp.ldexp(1, -90)


def test_sums_that_cancel_exactly_are_zero() -> None:
    # dq = scale * sum_j dS_ij k with one k for all: sum_j dS_ij = 0 for any weights.
    x = draw(2, (1, 1, 1, 3, 4, 3, 3), torch.float32)
    k = x["k"][:, :, :1].expand_as(x["k"])
    weights = torch.tensor([1.0, 2.0, 4.0, 8.0])[:, None]

    exact = exact_attention(x["q"], k, x["v"] * weights, x["do"], scale=1.0)

    assert not any(exact.dq.flat)


def test_precision_grows_until_a_near_cancellation_is_resolved() -> None:
    # Key 0 has P = 1 / (1 + exp(2**-250)) in row 0 and 1 / 2 in row 1; dO is 1 and -1: dv is their difference, -2**-252.
    q, k, zero = tensor([2.0**-250], [0.0]), tensor([0.0], [1.0]), tensor([0.0], [0.0])

    exact = exact_attention(q, k, zero, tensor([1.0], [-1.0]), scale=1.0)

    assert exact.precision == 640
    assert [float(x) for x in exact.dv.flat] == [-(2.0**-252), 2.0**-252]


def test_a_cancellation_below_the_stated_limit_gives_zero() -> None:
    q, k, zero = tensor([2.0**-500], [0.0]), tensor([0.0], [1.0]), tensor([0.0], [0.0])

    assert not any(exact_attention(q, k, zero, tensor([1.0], [-1.0]), scale=1.0).dv.flat)


def test_results_round_once_to_the_output_dtype() -> None:
    exact = exact_attention(tensor([0.0]), tensor([0.0], [0.0]), tensor([1.0], [1 + 2.0**-7 + 2.0**-39]), scale=1.0)

    assert round_array(exact.o, torch.bfloat16).item() == 1.0078125


def test_the_precision_of_mpmath_is_left_alone() -> None:
    x = draw(7, (1, 1, 1, 2, 2, 2, 2), torch.float32)
    with mp.workprec(20):
        low = exact_attention(x["q"], x["k"], x["v"], x["do"], scale=0.3)
        assert mp.prec == 20
    high = exact_attention(x["q"], x["k"], x["v"], x["do"], scale=0.3)

    assert mp.prec == 53
    assert all(bool((a == b).all()) for (_, a), (_, b) in zip(low.arrays(), high.arrays(), strict=True))


def test_precision_exhausted_names_the_limit() -> None:
    x = draw(8, (1, 1, 1, 2, 2, 2, 2), torch.float32)
    with pytest.raises(PrecisionExhausted, match="max_precision=200 bits"):
        exact_attention(x["q"], x["k"], x["v"], scale=0.3, max_precision=200)
    assert mp.prec == 53
