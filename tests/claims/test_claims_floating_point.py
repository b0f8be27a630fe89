"""Claims that hold for real numbers, put to fp32 and the 16-bit types: the project's kernels and oracles beside the text."""

import math

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashverify_kernels import Configs, LaunchConfig, Options, attention, merge
from flashverify_kernels.algorithms import Setting, paper_forward, standard_forward
from flashverify_kernels.launch import backward, forward
from flashverify_kernels.terms import LOG2_E
from flashverify_oracles import backward as oracle_backward
from flashverify_oracles import forward as oracle
from flashverify_oracles import round_scalar, round_tensor

f32 = np.float32


def stream(scores, values, block):
    """Online softmax times V in fp32, `block` scores at a time."""
    m, s, o = f32(-np.inf), f32(0), np.zeros(values.shape[1], f32)
    with np.errstate(invalid="ignore", over="ignore"):
        for j in range(0, len(scores), block):
            z = scores[j : j + block]
            new = np.maximum(m, z.max())
            old, w = np.exp(m - new), np.exp(z - new)
            m, s, o = new, s * old + w.sum(dtype=f32), o * old + w @ values[j : j + block]
    return o / s


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def row(scores, values=None, *, scale=1.0, dtype=torch.float32):
    """q `[1, 1, 1, 8]`, k and v `[1, 1, keys, 8]` of one row whose logits are `scores`."""
    q, k, v = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, len(scores), 8), torch.ones(1, 1, len(scores), 8)
    q[..., 0], k[..., 0] = 1, torch.tensor([float(x) for x in scores]) / scale
    if values is not None:
        v[0, 0, :, 0] = torch.tensor(values)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def test_tiled_and_standard_attention_are_not_equal_bit_for_bit():
    q, k, v = (draw(1, 1, 64, 16, seed=seed) for seed in range(3))
    exact = oracle(q, k, v, scale=1.0).o
    tiled = [paper_forward(q, k, v, Setting(scale=1.0, block_m=16, block_n=block)).o for block in (16, 32)]
    results = [standard_forward(q, k, v, Setting(scale=1.0)).o, *tiled]

    assert not torch.equal(results[0], results[1])
    assert not torch.equal(results[1], results[2])
    for o in results:
        torch.testing.assert_close(o.double(), exact, rtol=1e-4, atol=1e-5)


def test_the_merge_is_associative_in_real_numbers_but_not_in_fp32():
    o, lse = draw(3, 1, 1, 256, 8), draw(3, 1, 1, 256, seed=1)

    def both(first, second):
        return merge(*(torch.stack(x) for x in zip(first, second, strict=True)))

    parts = list(zip(o, lse, strict=True))
    left, right = both(both(parts[0], parts[1]), parts[2]), both(parts[0], both(parts[1], parts[2]))
    weights = lse.double().softmax(0)
    exact = (weights[..., None] * o.double()).sum(0)

    assert int((left[0] != right[0]).sum()) > 100
    for found in (left[0], right[0]):
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6)


@triton.jit
def exponential(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.exp(tl.load(x_ptr + i)))


def test_exp_in_fp32_overflows_at_89_and_not_at_85():
    exponents, out = torch.tensor([85.0, 88.0, 89.0, 90.0, 100.0, -104.0, 0.0, 1.0]), torch.zeros(8)

    exponential[(1,)](exponents, out, N=8)

    assert out.isinf().tolist() == [
        False,
        False,
        True,
        True,
        True,
        False,
        False,
        False,
    ]  # printed: 85 overflows, 100 is fine
    for exponent in (85, 89, 90, 100):
        assert math.isinf(round_scalar(math.exp(exponent), torch.float32)) == (exponent > 88)
    assert 0 < round_scalar(math.exp(-100), torch.float32) < torch.finfo(torch.float32).tiny
    assert round_scalar(math.exp(-104), torch.float32) == 0


def test_online_softmax_is_not_always_safe():
    values = np.ones((4, 1), f32)
    masked_first = np.array([-np.inf, -np.inf, 1, 2], f32)
    assert np.isnan(stream(masked_first, values, 2)).all()  # a first tile without a visible key: -inf - -inf
    assert np.isnan(stream(np.full(4, -np.inf, f32), values, 4)).all()  # a row without keys: 0 / 0
    with np.errstate(over="ignore"):
        scores = f32(1e20) * np.array([1e20, 1, 1, 1], f32)
    assert np.isnan(stream(scores, values, 4)).all()  # a score that overflows before its maximum is subtracted


def test_the_kernels_are_safe_where_a_first_tile_or_a_row_has_no_key():
    q, k, v = (draw(1, 1, 40, 16, seed=seed) for seed in range(3))
    config = Configs(forward=LaunchConfig(block_m=16, block_n=16))
    o = forward(q, k, v, Options(window=(4, 0), config=config)).o
    empty = forward(q, k, v, Options(key_lengths=torch.zeros(1, dtype=torch.int32), config=config))

    assert bool(o.isfinite().all())
    assert bool((empty.o == 0).all())
    assert bool((empty.lse2 == -math.inf).all())


def test_without_the_maximum_softmax_overflows():
    scores = np.array([100.0, 0.0], f32)
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(np.exp(scores) / np.exp(scores).sum()).any()
    o = forward(*row(scores, [3.0, 5.0]), Options(scale=1.0)).o
    assert float(o[0, 0, 0, 0]) == 3.0


def test_an_unmasked_padded_key_adds_2_to_the_minus_m_not_1():
    base2 = math.log(2)

    def total(scores, shift, **options):
        """The sum of 2^(score - shift) that the kernel's LSE stands for."""
        lse2 = forward(*row(scores), Options(scale=base2, **options)).lse2
        return float(torch.exp2(lse2.double() - shift))

    masked = {"key_lengths": torch.tensor([2], dtype=torch.int32)}
    inflation = total([10.0, 8.0, 0.0], 10) - total([10.0, 8.0, 0.0], 10, **masked)
    assert inflation == pytest.approx(2.0**-10, rel=1e-2)
    assert total([-10.0, -8.0, 0.0], 0) - total([-10.0, -8.0, 0.0], 0, **masked) == pytest.approx(1, rel=1e-6)


def unmasked_dq(delta, dtype, lse2=-20.0, **options):
    """dQ from one padded key of zeros: p = 2^-lse2, and dS rounded to the input's type meets the zero row."""
    q, k, v = row([0.0], [0.0], dtype=dtype)
    o, do = torch.zeros_like(q), torch.zeros_like(q)
    statistics = torch.full((1, 1, 1), lse2)
    chosen = Options(scale=0.125, allow_interpreted_bf16=True, **options)
    return backward(do, q, k, v, o, statistics, chosen, dlse=torch.full((1, 1, 1), -delta)).dq


def test_nan_at_masked_positions_comes_from_ds_not_from_exp2():
    assert math.isfinite(round_scalar(2.0**20, torch.float32))  # p: no overflow
    assert bool(unmasked_dq(1.0, torch.float16).isnan().any())  # 2^20 becomes inf in fp16
    assert bool((unmasked_dq(0.01, torch.float16) == 0).all())
    assert bool((unmasked_dq(1.0, torch.bfloat16) == 0).all())
    assert bool(unmasked_dq(1.0, torch.bfloat16, lse2=-200.0).isnan().any())
    masked = {"key_lengths": torch.zeros(1, dtype=torch.int32)}
    assert bool((unmasked_dq(1.0, torch.float16, **masked) == 0).all())


def padded_query(q, lse2, delta=0.0, **options):
    """(dV, dK) that one padded query with dO = 0 adds to a key of ones; its logit in base 2 is `q`."""
    rows, k, v = row([1.0], dtype=torch.float16)
    rows[..., 0] = q
    statistics = torch.full((1, 1, 1), lse2)
    zero = torch.zeros_like(rows)
    found = backward(
        zero, rows, k, v, zero, statistics, Options(scale=math.log(2), **options), dlse=torch.full((1, 1, 1), -delta)
    )
    return float(found.dv.sum()), float(found.dk.sum())


def test_zero_padding_of_queries_suffices_only_with_filled_statistics():
    assert padded_query(0.0, lse2=0.0) == (0, 0)
    for undefined in (math.nan, -1e38):
        assert any(map(math.isnan, padded_query(0.0, lse2=undefined)))
    assert any(map(math.isnan, padded_query(0.0, lse2=0.0, delta=math.nan)))


def test_dirty_queries_are_harmless_where_they_are_finite_and_have_their_own_lse():
    assert padded_query(200.0, lse2=200.0) == (0, 0)
    assert math.isnan(padded_query(200.0, lse2=0.0)[0])  # p = 2^200 is inf, inf * 0 is NaN
    assert math.isnan(padded_query(17.0, lse2=0.0)[0])  # 2^17 is inf in fp16 already
    for dirt in (math.nan, math.inf):
        assert any(map(math.isnan, padded_query(dirt, lse2=0.0)))
    outside = {"query_lengths": torch.zeros(1, dtype=torch.int32)}
    assert padded_query(math.nan, lse2=math.nan, **outside) == (0, 0)


def test_index_selection_zeroes_the_gradient_of_what_is_not_selected():
    q, k, v = (draw(1, 1, 4, 8, seed=seed) for seed in range(3))
    q.requires_grad_()
    attention(q, k, v)[:, :, torch.tensor([0, 2])].sum().backward()
    assert (q.grad[0, 0] != 0).any(1).tolist() == [True, False, True, False]


def test_delta_from_a_stored_16_bit_o_is_not_the_exact_row_sum():
    q, k, v, do = (draw(1, 1, 32, 16, seed=seed, dtype=torch.float16) for seed in range(4))
    exact = oracle(q, k, v, scale=0.25)
    delta = oracle_backward(q, k, v, do, scale=0.25, forward=exact).delta
    stored = round_tensor(exact.o, torch.float16)
    found = forward(q, k, v, Options(scale=0.25))
    kernel = backward(do, q, k, v, found.o, found.lse2, Options(scale=0.25)).delta

    assert torch.allclose((do.double() * exact.o).sum(-1), delta, rtol=1e-12, atol=1e-12)
    assert not torch.allclose((do.double() * stored.double()).sum(-1), delta, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(kernel.double(), delta, rtol=1e-6, atol=1e-6)
    assert torch.allclose(kernel.double(), delta, rtol=0, atol=2e-2)


def test_log2_e_to_the_digits_printed_and_what_they_cost():
    assert round(LOG2_E, 6) == 1.442695
    assert abs(1.442695 / LOG2_E - 1) < 2**-24  # typed as six decimals it is a rounding of fp32
