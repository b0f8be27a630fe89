"""Windows and query lengths."""

import math

import pytest
import torch

from flashverify_kernels import attention
from tests.fast_tier import fast_one_in

CAUSAL = (None, "top-left", "bottom-right")


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def equal(got, wanted):
    for name, x in wanted.items():
        assert torch.equal(got[name], x), name


# Windows narrower than a tile, about one and several tiles wide, one-sided, and of the diagonal alone.
@pytest.mark.one_in(4)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("window", fast_one_in(2, [(5, 3), (0, 0), (40, None), (None, 20), (33, 15)], ids=str))
@pytest.mark.parametrize(("sq", "sk"), [(50, 70), (70, 33)])
def test_windows_agree_with_the_definition(make_case, see, blocks, causal, window, sq, sk):
    case = make_case(heads=2, kv_heads=1, sq=sq, sk=sk)
    case.check(see(1, sq, sk, causal, window=window), causal=causal, window=window, config=blocks(16, 32))


@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_windows_of_half_precision_with_lengths(make_case, see, blocks, causal):
    queries, lengths, window = [30, 0, 45, 7], [61, 20, 0, 64], (20, 9)
    case = make_case(batch=4, heads=2, kv_heads=1, sq=45, sk=64, d=32, dtype=torch.float16)
    case.check(
        see(4, 45, 64, causal, lengths, window=window, queries=queries),
        causal=causal,
        window=window,
        query_lengths=int32(*queries),
        key_lengths=int32(*lengths),
        config=blocks(32, 16),
    )


def test_a_window_with_right_side_0_is_causal_bit_for_bit(make_case, blocks):
    case = make_case(heads=2, kv_heads=1, sq=50, sk=70)
    equal(case.run(window=(None, 0), config=blocks(16, 32)), case.run(causal="top-left", config=blocks(16, 32)))


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("side", [70, 2**31 - 1, 2**80])
def test_a_window_as_wide_as_the_problem_is_none_bit_for_bit(make_case, blocks, causal, side):
    case = make_case(sq=50, sk=70)
    plain = case.run(causal=causal, config=blocks(16, 16))
    equal(case.run(causal=causal, window=(side, side), config=blocks(16, 16)), plain)
    equal(case.run(causal=causal, window=(side, None), config=blocks(16, 16)), plain)


def test_keys_outside_the_window_of_a_tile_are_not_read(make_case, blocks):
    case = make_case(sq=96, sk=96)
    options = {"window": (8, 8), "config": blocks(16, 16)}
    clean = case.run(**options)
    for x in (case.k, case.v):
        x[:, :, :32] = math.nan
    poisoned = case.run(**options)
    for name in ("o", "lse", "dq", "dk", "dv"):
        assert torch.equal(poisoned[name][:, :, 64:], clean[name][:, :, 64:]), name


@pytest.mark.parametrize("causal", CAUSAL)
def test_query_lengths_equal_truncated_queries_bit_for_bit(make_case, blocks, causal):
    case, n, config = make_case(sq=40, sk=30), 25, blocks(16, 16)
    padded = case.run(causal=causal, query_lengths=int32(n), config=config)
    for name in ("q", "do", "dlse"):
        setattr(case, name, getattr(case, name)[:, :, :n])
    cut = case.run(causal=causal, config=config)
    for name, x in cut.items():
        assert torch.equal(padded[name] if name in ("dk", "dv") else padded[name][:, :, :n], x), name
    for name, fill in (("o", 0), ("lse", -math.inf), ("dq", 0)):
        assert bool((padded[name][:, :, n:] == fill).all()), name


@pytest.mark.parametrize("poison", [math.nan, math.inf, 3e38])
def test_what_lies_beyond_the_query_length_never_matters(make_case, blocks, poison):
    case = make_case(batch=2, heads=2, kv_heads=1, sq=40, sk=20)
    options = {"query_lengths": int32(0, 25), "config": blocks(16, 16)}
    clean = case.run(**options)
    for x in (case.q, case.do, case.dlse):
        x[0] = poison
        x[1, :, 25:] = poison
    equal(case.run(**options), clean)


@pytest.mark.parametrize(
    ("window", "error", "message"),
    [
        ((-1, 0), ValueError, r"window: expected sides of 0 or more keys, got \(-1, 0\)"),
        ((1.0, 0), TypeError, r"window: expected whole numbers or None, got \(1.0, 0\)"),
        (5, TypeError, r"window: expected \(left, right\), got 5"),
        ((1, 2, 3), TypeError, r"window: expected \(left, right\), got \(1, 2, 3\)"),
    ],
)
def test_windows_are_refused_by_value(window, error, message):
    q = torch.zeros(1, 1, 4, 8)
    with pytest.raises(error, match=message):
        attention(q, q, q, window=window)


def test_query_lengths_are_checked():
    q = torch.zeros(1, 1, 4, 8)
    with pytest.raises(TypeError, match=r"query_lengths: expected torch.int32, got torch.int64"):
        attention(q, q, q, query_lengths=torch.tensor([4]))
    with pytest.raises(ValueError, match=r"query_lengths: expected shape \(1,\), got \(2,\)"):
        attention(q, q, q, query_lengths=int32(4, 4))


def test_query_lengths_may_not_change_between_forward_and_backward(make_case):
    case, lengths = make_case(sq=8, sk=8), int32(5)
    o = attention(case.q.requires_grad_(), case.k, case.v, query_lengths=lengths)
    lengths.fill_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()
