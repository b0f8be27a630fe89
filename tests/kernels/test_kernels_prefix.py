"""Prefixes that every row of a causal sequence sees."""

import itertools
import math

import pytest
import torch

from flashverify_kernels import Bitmap, BlockMask, attention, attention_varlen
from flashverify_kernels.options import Options
from tests.fast_tier import fast_one_in

CAUSAL = ("top-left", "bottom-right")


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("size", fast_one_in(3, [(16, 32), (16, 16), (32, 16)], ids=str, kept=2))
@pytest.mark.parametrize(
    ("sq", "sk"),
    [
        (40, 70),
        pytest.param(70, 33, marks=pytest.mark.slow),
        pytest.param(50, 50, marks=[pytest.mark.slow, pytest.mark.thorough]),
    ],
)
def test_prefixes_of_every_length_agree_with_the_definition(make_case, see, blocks, causal, size, sq, sk):
    prefix = [n for n in (0, 1, 15, 16, 17, 31, 32, 33, 48, 70) if n <= sk]
    case = make_case(batch=len(prefix), heads=2, kv_heads=1, sq=sq, sk=sk)
    visible = see(len(prefix), sq, sk, causal, prefix=prefix)
    case.check(visible, causal=causal, prefix_lengths=int32(*prefix), config=blocks(*size))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("left", [0, 7, 40])
def test_the_left_side_of_a_window_hides_keys_of_the_prefix(make_case, see, blocks, causal, left):
    prefix, window = [0, 20, 45, 64], (left, None)
    case = make_case(batch=4, heads=2, kv_heads=2, sq=50, sk=64)
    visible = see(4, 50, 64, causal, window=window, prefix=prefix)
    case.check(visible, causal=causal, window=window, prefix_lengths=int32(*prefix), config=blocks(16, 16))


@pytest.mark.parametrize("causal", CAUSAL)
def test_a_prefix_ends_with_the_declared_keys_and_rows(make_case, see, blocks, causal):
    queries, lengths, prefix = [30, 0, 45, 7], [61, 20, 0, 33], [64, 10, 5, 40]
    case = make_case(batch=4, heads=2, kv_heads=1, sq=45, sk=64, d=32, dtype=torch.float16)
    case.check(
        see(4, 45, 64, causal, lengths, queries=queries, prefix=prefix),
        causal=causal,
        query_lengths=int32(*queries),
        key_lengths=int32(*lengths),
        prefix_lengths=int32(*prefix),
        config=blocks(32, 16),
    )


def test_a_prefix_goes_together_with_a_bitmap_and_blocks(make_case, see, blocks):
    prefix = [0, 37, 64]
    case = make_case(batch=3, heads=2, kv_heads=1, sq=64, sk=64)
    rng = torch.Generator("cpu").manual_seed(1)
    bits = (torch.rand(3, 2, 64, 64, generator=rng, device="cpu") < 0.5).to(case.q.device)
    live = (torch.rand(3, 2, 4, 2, generator=rng, device="cpu") < 0.6).to(case.q.device)
    dense = live.repeat_interleave(16, 2).repeat_interleave(32, 3)
    visible = see(3, 64, 64, "top-left", prefix=prefix)
    options = {"causal": "top-left", "prefix_lengths": int32(*prefix), "config": blocks(16, 16)}
    case.check(visible & bits, bitmap=Bitmap.from_bool(bits), **options)
    case.check(visible & dense, blocks=BlockMask.from_bool(live, 16, 32), **options)
    case.check(
        visible & bits & dense, bitmap=Bitmap.from_bool(bits), blocks=BlockMask.from_bool(live, 16, 32), **options
    )


@pytest.mark.parametrize("causal", CAUSAL)
def test_a_prefix_of_a_packed_sequence_stays_in_it(make_case, blocks, causal):
    cu_q, cu_k, prefix, config = int32(0, 20, 20, 50), int32(0, 33, 40, 64), (45, 3, 10), blocks(16, 16)
    case = make_case(heads=2, kv_heads=1, sq=50, sk=64)
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (case.q, case.k, case.v))
    options = {"causal": causal, "config": config}
    o, lse = attention_varlen(q, k, v, cu_q, cu_k, max_q=30, max_k=33, prefix_lengths=int32(*prefix), **options)
    limits = zip(itertools.pairwise(cu_q.tolist()), itertools.pairwise(cu_k.tolist()), prefix, strict=True)
    for (q0, q1), (k0, k1), n in limits:
        alone, alone_lse = attention(
            case.q[:, :, q0:q1],
            case.k[:, :, k0:k1],
            case.v[:, :, k0:k1],
            prefix_lengths=int32(min(n, k1 - k0)),
            return_lse=True,
            **options,
        )
        assert torch.equal(o[q0:q1].transpose(0, 1), alone[0])
        assert torch.equal(lse[:, q0:q1], alone_lse[0])


def test_a_prefix_of_0_is_causal_and_one_of_all_keys_is_no_mask_bit_for_bit(make_case, blocks):
    case = make_case(heads=2, kv_heads=1, sq=50, sk=70)
    for prefix, plain in ((0, {"causal": "top-left"}), (70, {})):
        got = case.run(causal="top-left", prefix_lengths=int32(prefix), config=blocks(16, 32))
        wanted = case.run(config=blocks(16, 32), **plain)
        for name, x in wanted.items():
            assert torch.equal(got[name], x), name


def test_keys_behind_the_diagonal_and_the_prefix_are_not_read(make_case, blocks):
    case = make_case(sq=32, sk=96)
    options = {"causal": "top-left", "prefix_lengths": int32(48), "config": blocks(16, 16)}
    clean = case.run(**options)
    case.k[:, :, 48:] = math.nan
    case.v[:, :, 48:] = math.nan
    poisoned = case.run(**options)
    for name in ("o", "lse", "dq"):
        assert torch.equal(poisoned[name], clean[name]), name


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, r"prefix_lengths: expected causal='top-left' or 'bottom-right' with it, got causal=None"),
        (
            {"causal": "top-left", "window": (4, 2)},
            ValueError,
            r"prefix_lengths: expected a window whose right side is None with it, got window=\(4, 2\)",
        ),
        ({"prefix_lengths": [3]}, TypeError, r"prefix_lengths: expected a tensor, got list"),
        ({"prefix_lengths": int32(3).long()}, TypeError, r"prefix_lengths: expected torch.int32, got torch.int64"),
        ({"prefix_lengths": int32(3, 3)}, ValueError, r"prefix_lengths: expected shape \(1,\), got \(2,\)"),
        ({"prefix_lengths": int32(5)}, ValueError, r"prefix_lengths: expected values from 0 to 4, got \[5\]"),
        ({"prefix_lengths": int32(-1)}, ValueError, r"prefix_lengths: expected values from 0 to 4, got \[-1\]"),
    ],
)
def test_prefixes_are_refused_by_value(options, error, message):
    q = torch.zeros(1, 1, 4, 8)
    options = {"prefix_lengths": int32(3)} | options
    options = {name: x.to(q.device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    with pytest.raises(error, match=message):
        attention(q, q, q, **options)


def test_a_prefix_is_refused_with_a_tree(tree):
    q = torch.zeros(1, 1, 2, 8)
    with pytest.raises(ValueError, match="prefix_lengths: cannot be combined with a tree"):
        attention(q, q, q, tree=tree((-1, 0)), prefix_lengths=int32(1))


def test_prefixes_may_not_change_between_forward_and_backward(make_case):
    case, lengths = make_case(sq=8, sk=8), int32(5)
    o = attention(case.q.requires_grad_(), case.k, case.v, causal="top-left", prefix_lengths=lengths)
    lengths.fill_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()
    assert any(x is lengths for x in Options(prefix_lengths=lengths).tables())
