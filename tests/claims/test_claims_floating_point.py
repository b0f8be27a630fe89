"""Claims that hold for real numbers, put to fp32 and the 16-bit types."""

import math

import numpy as np
import pytest
import torch

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


def test_tiled_and_standard_attention_are_not_equal_bit_for_bit():
    rng = np.random.default_rng(0)
    scores, values = rng.normal(size=64).astype(f32), rng.normal(size=(64, 16)).astype(f32)
    results = [stream(scores, values, block) for block in (64, 16, 1)]

    assert not np.array_equal(results[0], results[1])
    assert not np.array_equal(results[1], results[2])
    np.testing.assert_allclose(results[0], results[2], rtol=1e-4, atol=1e-6)


def merge(a, b):
    (ma, sa, oa), (mb, sb, ob) = a, b
    m = max(ma, mb)
    ca, cb = type(ma)(math.exp(ma - m)), type(mb)(math.exp(mb - m))
    s = sa * ca + sb * cb
    return m, s, (oa * sa * ca + ob * sb * cb) / s


def test_the_merge_is_associative_in_real_numbers_but_not_in_fp32():
    rng = np.random.default_rng(1)
    differ = 0
    for _ in range(50):
        parts = [tuple(x) for x in rng.uniform(0.1, 4, (3, 3))]
        left, right = merge(merge(parts[0], parts[1]), parts[2]), merge(parts[0], merge(parts[1], parts[2]))
        assert left == pytest.approx(right, rel=1e-14)
        a, b, c = ([f32(x) for x in part] for part in parts)
        differ += merge(merge(a, b), c) != merge(a, merge(b, c))
    assert differ > 10


def test_an_empty_tile_is_no_neutral_element_of_the_merge():
    total, output = 0.0, 0.0
    with pytest.raises(ZeroDivisionError):
        output * total / total
    assert math.isnan(-math.inf - -math.inf)  # what exp(m_i - m_new) reads where both are empty


@pytest.mark.parametrize(
    ("exponent", "printed", "overflows"), [(85, "overflow", False), (89, "4.49e38", True), (90, "+inf", True)]
)
def test_exp_in_fp32(exponent, printed, overflows):
    with np.errstate(over="ignore"):
        assert bool(np.isinf(np.exp(f32(exponent)))) == overflows


def test_exp_of_100_is_no_fp32_number_and_exp_of_85_is():
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(f32(100)))  # printed: fine in FP32
    assert math.exp(85) < np.finfo(f32).max
    assert 0 < float(f32(math.exp(-100))) < np.finfo(f32).tiny
    assert f32(math.exp(-104)) == 0


def test_online_softmax_is_not_always_safe():
    values = np.ones((4, 1), f32)
    masked_first = np.array([-np.inf, -np.inf, 1, 2], f32)
    assert np.isnan(stream(masked_first, values, 2)).all()  # a first tile without a visible key: -inf - -inf
    assert np.isnan(stream(np.full(4, -np.inf, f32), values, 4)).all()  # a row without keys: 0 / 0
    with np.errstate(over="ignore"):
        scores = f32(1e20) * np.array([1e20, 1, 1, 1], f32)
    assert np.isnan(stream(scores, values, 4)).all()  # a score that overflows before its maximum is subtracted


def test_without_the_maximum_softmax_overflows():
    scores = np.array([100.0, 0.0], f32)
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isnan(np.exp(scores) / np.exp(scores).sum()).any()


def test_an_unmasked_padded_key_adds_2_to_the_minus_m_not_1():
    scores = np.array([10.0, 8.0])
    padded = np.append(scores, 0.0)
    m = padded.max()
    inflation = np.exp2(padded - m).sum() - np.exp2(scores - m).sum()
    assert inflation == 2.0**-10
    negative = np.array([-10.0, -8.0])
    assert np.exp2(np.append(negative, 0.0) - 0.0)[-1] == 1.0  # 1 where the padded key is the maximum


def unmasked_dq(delta, dtype, lse=-20.0, scale=0.125):
    """What a padded, zeroed key adds to dQ without a mask: p in fp32, dS rounded to the input's type, times a zero row."""
    p = torch.exp2(torch.tensor(0.0 - lse))
    ds = p * (0.0 - delta) * scale
    return p, ds.to(dtype) * torch.zeros((), dtype=dtype)


def test_nan_at_masked_positions_comes_from_ds_not_from_exp2():
    p, added = unmasked_dq(1.0, torch.float16)
    assert float(p) == 2.0**20  # fp32: no overflow
    assert added.isnan()  # -131072 becomes -inf in fp16
    assert unmasked_dq(0.1, torch.float16)[1] == 0
    assert unmasked_dq(1.0, torch.bfloat16)[1] == 0
    assert unmasked_dq(1.0, torch.bfloat16, lse=-200.0)[1].isnan()


def padded_query(q, lse, do=0.0, delta=0.0, k=1.0, v=1.0, dtype=torch.float16):
    """(dV, dK) that one padded query adds."""
    q, do, k, v = (torch.tensor(x, dtype=dtype) for x in (q, do, k, v))
    p = torch.exp2(q.float() * k.float() - lse)
    ds = p * (do.float() * v.float() - delta)
    return float(p.to(dtype) * do), float(ds.to(dtype) * q)


def test_zero_padding_of_queries_suffices_only_with_filled_statistics():
    assert padded_query(0.0, lse=0.0) == (0, 0)
    for undefined in (math.nan, -math.inf, -1e38):
        assert any(map(math.isnan, padded_query(0.0, lse=undefined)))
    assert any(map(math.isnan, padded_query(0.0, lse=0.0, delta=math.nan)))


def test_dirty_queries_are_harmless_where_they_are_finite_and_have_their_own_lse():
    assert padded_query(200.0, lse=200.0) == (0, 0)
    assert math.isnan(padded_query(200.0, lse=0.0)[0])  # p = 2^200 is inf, inf * 0 is NaN
    assert math.isnan(padded_query(17.0, lse=0.0)[0])  # 2^17 is inf in fp16 already
    for dirt in (math.nan, math.inf):
        assert any(map(math.isnan, padded_query(dirt, lse=0.0)))


def test_index_selection_zeroes_the_gradient_of_what_is_not_selected():
    o = torch.randn(4, 2, requires_grad=True)
    o[torch.tensor([0, 2])].sum().backward()
    assert torch.equal(o.grad, torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))


def test_delta_from_a_stored_16_bit_o_is_not_the_exact_row_sum():
    g = torch.Generator().manual_seed(0)
    p = torch.softmax(torch.randn(8, 32, generator=g), 1).double()
    v, do = (torch.randn(32, 16, generator=g).double(), torch.randn(8, 16, generator=g).double())
    exact = (p * (do @ v.T)).sum(1)
    assert torch.allclose((do * (p @ v)).sum(1), exact, rtol=1e-12, atol=1e-12)
    assert not torch.allclose((do * (p @ v).half().double()).sum(1), exact, rtol=1e-6, atol=1e-6)


def test_log2_e_to_the_digits_printed_and_what_they_cost():
    assert round(math.log2(math.e), 6) == 1.442695
    assert abs(1.442695 / math.log2(math.e) - 1) < 2**-24  # typed as six decimals it is a rounding of fp32
