import math

import numpy as np
import pytest
import torch
import triton.language as tl

from flashverify.interpreter import session
from flashverify_kernels.device.arguments import LogitTerms
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.logits import dot_gradient, head_terms, logits, tanh, tanh_slope
from flashverify_kernels.runtime import INTERPRETED
from flashverify_kernels.views import view

LOG2_E = math.log2(math.e)
LARGEST = float(np.finfo(np.float32).max)


@kernel
def tanh_kernel(x_ptr, tanh_ptr, slope_ptr, size: tl.int32, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    tl.store(tanh_ptr + at, tanh(x), mask=at < size)
    tl.store(slope_ptr + at, tanh_slope(x), mask=at < size)


def tanhs(x):
    y, slope = torch.empty_like(x), torch.empty_like(x)
    tanh_kernel[-(-x.numel() // 1024),](x, y, slope, size=x.numel(), BLOCK=1024)
    return y, slope


def points():
    """Every binade from the subnormals to the end, both ends of each and between, both signs, and many around the bend."""
    bits = torch.arange(0, 0x7F800000, 0x3FFF1, dtype=torch.int64).to(torch.int32).view(torch.float32)
    some = torch.cat([bits, torch.linspace(0.4, 25, 20001), torch.linspace(0.49999, 0.50001, 1001)])
    return torch.cat([some, -some])


def test_tanh_is_odd_bounded_and_relatively_accurate():
    x = points()
    y, _ = tanhs(x)
    assert torch.equal(tanhs(-x)[0], -y)
    assert float(y.abs().max()) == 1.0
    wanted = torch.tanh(x.double())
    normal = x.abs() >= 2.0**-126
    error = ((y.double() - wanted) / wanted)[normal].abs().max()
    assert float(error) <= (3 if INTERPRETED else 12) * 2.0**-24
    assert float((y.double() - wanted).abs()[~normal].max()) <= 2.0**-126


def test_the_slope_of_tanh_is_relatively_accurate_where_one_minus_a_square_cancels():
    x = points()
    _, slope = tanhs(x)
    size = x.double().abs()
    wanted = torch.cosh(size.clamp(max=300)) ** -2
    normal = wanted >= 2.0**-120
    error = ((slope.double() - wanted).abs() / wanted)[normal]
    assert bool((error <= ((3 if INTERPRETED else 12) + 2.5 * size)[normal] * 2.0**-24).all())
    assert bool((slope >= 0).all())
    assert float(slope.max()) <= 1 + 2.0**-23
    assert float(slope[~normal].max()) <= 2.0**-119


def test_tanh_of_infinities_and_nan():
    y, slope = tanhs(torch.tensor([math.inf, -math.inf, math.nan]))
    assert y[:2].tolist() == [1.0, -1.0]
    assert slope[:2].tolist() == [0.0, 0.0]
    assert bool(y[2].isnan())
    assert bool(slope[2].isnan())


@kernel
def logits_kernel(
    dot_ptr,
    ds_ptr,
    z_ptr,
    ddot_ptr,
    terms: LogitTerms,
    shift: tl.int32,
    heads: tl.int32,
    sq: tl.int32,
    k_end: tl.int32,
    sk: tl.int32,
    TRANSPOSED: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    b = tl.program_id(0) // heads
    h = tl.program_id(0) % heads
    rows, keys = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    i = rows[None, :] if TRANSPOSED else rows[:, None]
    j = keys[:, None] if TRANSPOSED else keys[None, :]
    at = (tl.program_id(0).to(tl.int64) * sq + i) * sk + j
    keep = (i < sq) & (j < sk)
    dot = tl.load(dot_ptr + at, mask=keep, other=0.0)
    # keys that count: those of a sequence whose queries end `shift` before them
    head = head_terms(terms, b, h, b * 0, k_end, k_end + shift)
    z = logits(dot, i, j, sq, k_end, terms, head, MASKED)
    ds = tl.load(ds_ptr + at, mask=keep, other=0.0)
    tl.store(z_ptr + at, z, mask=keep)
    tl.store(ddot_ptr + at, dot_gradient(ds, dot, terms.cap_ratio), mask=keep)


def run(dot, ds, *, scale, softcap=None, slopes=None, bias=None, shift=0, transposed=False, masked=True, k_end=None):
    batch, heads, sq, sk = dot.shape
    z, ddot = torch.full_like(dot, 7.0), torch.full_like(dot, 7.0)
    terms = LogitTerms(
        scale=scale,
        scale_log2=scale * LOG2_E,
        cap_ratio=None if softcap is None else scale / softcap,
        cap_log2=None if softcap is None else softcap * LOG2_E,
        slopes=slopes,
        align_distances=1,
        bias=view(bias),
        sink=None,
    )
    logits_kernel[batch * heads,](
        dot,
        ds,
        z,
        ddot,
        terms=terms,
        shift=shift,
        heads=heads,
        sq=sq,
        k_end=sk if k_end is None else k_end,
        sk=sk,
        TRANSPOSED=transposed,
        MASKED=masked,
        BLOCK_M=32,
        BLOCK_N=32,
    )
    return z, ddot


def draw(*shape, seed=0, size=1.0):
    return size * torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu").to(
        torch.get_default_device()
    )


def wanted(dot, ds, *, scale, softcap=None, slopes=None, bias=None, shift=0):
    t = scale * dot.double()
    s, gradient = t, ds.double()
    if softcap is not None:
        s, gradient = softcap * torch.tanh(t / softcap), gradient * torch.cosh((t / softcap).abs().clamp(max=300)) ** -2
    terms = [s]
    if bias is not None:
        terms.append(bias.double())
    if slopes is not None:
        i, j = torch.arange(dot.shape[2])[:, None], torch.arange(dot.shape[3])[None, :]
        terms.append(-slopes.double()[:, None, None] * (i + shift - j).abs())
    return sum(terms) * LOG2_E, gradient, sum(x.abs() for x in terms) * LOG2_E


FEATURES = [(c, a, b) for c in (None, 1e-3, 0.7, 30.0, 1e4) for a in (False, True) for b in (None, (2, 2), (1, 1))]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("softcap", "alibi", "shape"), FEATURES)
def test_logits_and_their_gradient_agree_with_the_definition(softcap, alibi, shape, transposed):
    batch, heads, sq, sk = 2, 2, 21, 29
    dot, ds = draw(batch, heads, sq, sk, size=40.0), draw(batch, heads, sq, sk, seed=1)
    options = {
        "scale": 0.37,
        "softcap": softcap,
        "slopes": 2.0 ** -torch.arange(1.0, 3.0) if alibi else None,
        "bias": draw(*shape, sq, sk, seed=2).half() if shape else None,
        "shift": 8 if alibi else 0,
    }
    z, ddot = run(dot, ds, transposed=transposed, **options)
    expected, gradient, size = wanted(dot, ds, **options)
    assert float(((z.double() - expected).abs() / size).max()) <= 8 * 2.0**-24
    slack = 2.0**-20 if softcap else 0.0
    # beyond its capacity an exponential is as good as its argument
    argument = (0.37 * dot.double() / softcap).abs() if softcap else 0.0
    assert bool(((ddot.double() - gradient).abs() <= gradient.abs() * (slack + 2.0**-22 * argument) + 2.0**-120).all())


def test_without_a_feature_the_logit_is_one_product_and_the_gradient_the_same_bits():
    dot, ds = draw(1, 2, 8, 8), draw(1, 2, 8, 8, seed=1)
    z, ddot = run(dot, ds, scale=0.3)
    assert torch.equal(z, dot * torch.tensor(0.3 * LOG2_E, dtype=torch.float32))
    assert torch.equal(ddot, ds)


def test_padding_of_a_bias_is_neither_read_nor_felt():
    dot = draw(1, 1, 8, 16)
    base = torch.full((8, 24), math.nan)
    base[:, :11] = 2.0
    z, _ = run(dot, dot, scale=1.0, bias=base[None, None, :, :16], k_end=11)
    assert torch.equal(z[..., 11:], dot[..., 11:] * torch.tensor(LOG2_E))
    assert bool(z.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_extreme_biases_slopes_and_caps_give_finite_logits(dtype):
    size = float(torch.finfo(dtype).max)
    bias = torch.tensor([size, -size, math.inf, -math.inf, 0.0, 1.0, -1.0, 2.0], dtype=dtype)
    dot = torch.tensor([1e38, -1e38, 1e30, 0.0, 1e-45, -5.0, 1e10, 3.0])[:, None].expand(1, 1, 8, 8).contiguous()
    for softcap in (None, 1e-3, 1e4):
        for slopes in (None, torch.tensor([3e38]), torch.tensor([-3e38]), torch.tensor([0.0])):
            z, ddot = run(dot, dot, scale=1.0, softcap=softcap, slopes=slopes, bias=bias.expand(1, 1, 8, 8), shift=3)
            assert bool(z.isfinite().all())
            assert bool(ddot.isfinite().all())


def test_a_nan_stays_a_nan():
    dot = torch.full((1, 1, 4, 4), math.nan)
    for softcap in (None, 2.0):
        z, _ = run(dot, dot, scale=1.0, softcap=softcap, bias=torch.zeros(1, 1, 4, 4))
        assert bool(z.isnan().all())


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.skipif(not INTERPRETED, reason="sessions interpret")
@pytest.mark.usefixtures("opens_sessions")
def test_a_session_computes_the_same_bits_in_lockstep(lockstep):
    dot, ds = draw(2, 2, 9, 17), draw(2, 2, 9, 17, seed=1)
    options = {"scale": 0.5, "softcap": 3.0, "slopes": torch.tensor([0.5, 0.25]), "bias": draw(1, 2, 9, 17, seed=2)}
    plain = run(dot, ds, **options)
    with session(lockstep=lockstep) as opened:
        for x, y in zip(run(dot, ds, **options), plain, strict=True):
            assert torch.equal(x, y)
        assert not opened.fallbacks
