"""Numerics of a GPU: the truncating dot against exact rationals, approximate operations within their documented errors."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashverify.campaign.environment import NUMERICS
from flashverify.case.case import Case, Mask, Values
from flashverify.checks import Plan, judge_case
from flashverify.errors import UsageError
from flashverify.interpreter import faithful
from flashverify.interpreter.hardware import MODES, TensorCore, current, mode, truncating_dot
from flashverify.numerics.primitives import ARCHITECTURES
from flashverify.subjects.bundled import BUNDLED
from tests.fast_tier import fast_one_in

SINGLE = np.finfo(np.float32)
LEAST = {"float16": -14, "bfloat16": -126, "tf32": -126}


def exponent(x, least):
    """The exponent that a nonzero value is aligned by."""
    return max(math.frexp(x)[1] - 1, least)


def toward_zero(x: Fraction, grid: int) -> Fraction:
    scaled = x / Fraction(2) ** grid
    return Fraction(math.trunc(scaled)) * Fraction(2) ** grid


def exact_dot(x, y, acc, core, kind):
    """One element, in rational numbers, from the description in docs/bounds.md."""
    total = Fraction(float(acc))
    step = core.step_tf32 if kind == "tf32" else core.step
    for k in range(0, len(x), step):
        pairs = [(float(a), float(b)) for a, b in zip(x[k : k + step], y[k : k + step], strict=True) if a and b]
        exponents = [exponent(a, LEAST[kind]) + exponent(b, LEAST[kind]) for a, b in pairs]
        top = max([-126, *exponents, *([exponent(float(total), -126)] if total else [])])
        terms = [Fraction(a) * Fraction(b) for a, b in pairs] + [total]
        total = sum((toward_zero(term, top - core.fraction_bits) for term in terms), Fraction(0))
        if total:
            total = toward_zero(total, exponent(float(total), -126) - 23)
    return float(total)


def operands(kind, shape, generator):
    """Mixed exponents, zeros, and subnormal numbers of the format."""
    spread = 10 if kind == "float16" else 30
    x = generator.standard_normal(shape) * 2.0 ** generator.integers(-spread, spread // 2, shape)
    x = np.where(generator.random(shape) < 0.1, 0.0, x)
    x = np.where(generator.random(shape) < 0.1, 2.0 ** LEAST[kind] / 8 * generator.integers(1, 8, shape), x)
    if kind == "float16":
        return x.astype(np.float16).astype(np.float32)
    bits = x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000 if kind == "bfloat16" else 0xFFFFE000)
    return bits.view(np.float32)


@pytest.mark.parametrize("kind", LEAST)
@pytest.mark.parametrize("core", [TensorCore(25, 16, 8), TensorCore(24, 8, 4)], ids=["hopper", "ampere"])
def test_the_dot_is_that_of_exact_rationals(core, kind):
    generator = np.random.default_rng(7)
    x, y = operands(kind, (2, 4, 48), generator), operands(kind, (2, 48, 5), generator)
    acc = (generator.standard_normal((2, 4, 5)) * 2.0 ** generator.integers(-8, 8, (2, 4, 5))).astype(np.float32)

    got = truncating_dot(x, y, acc, core, kind)

    want = [
        [[exact_dot(x[p, m], y[p, :, n], acc[p, m, n], core, kind) for n in range(5)] for m in range(4)] for p in (0, 1)
    ]
    assert np.array_equal(got, np.array(want, np.float32))
    assert not np.array_equal(got, x @ y + acc)


def test_a_product_is_aligned_by_the_exponents_of_its_operands():
    x, y = np.float32([[1.5, 1.5, 2.0**-13]]), np.float32([[1.5], [-1.5], [2.0**-12]])

    assert truncating_dot(x, y, np.float32([[0.0]]), TensorCore(25, 16, 8), "float16") == 2.0**-25
    assert truncating_dot(x, y, np.float32([[0.0]]), TensorCore(24, 16, 8), "float16") == 0


def test_infinities_and_nan_go_through():
    inf = math.inf
    x = np.float32([[inf, 1.0], [0.0, inf], [1.0, 2.0], [2.0**127, 2.0**127]])
    y = np.float32([[1.0, -1.0, 0.0, inf], [1.0, 1.0, 1.0, -inf]])

    with np.errstate(all="ignore"):
        got = truncating_dot(x, y, np.zeros((4, 4), np.float32), TensorCore(25, 16, 8), "bfloat16")

    nan = math.nan
    want = [[inf, -inf, nan, nan], [inf, inf, inf, nan], [3, 1, 2, nan], [inf, 0, 2.0**127, nan]]
    assert np.array_equal(got, np.float32(want), equal_nan=True)


def test_large_tiles_are_cut_without_a_trace():
    generator = np.random.default_rng(3)
    x, y = operands("float16", (6, 64, 32), generator), operands("float16", (1, 32, 64), generator)
    core = TensorCore(25, 16, 8)

    got = truncating_dot(x, y, np.float32(0), core, "float16")

    assert np.array_equal(got[4], truncating_dot(x[4], y[0], np.float32(0), core, "float16"))


def test_the_numbers_are_those_of_the_bounds():
    assert tuple(MODES) == NUMERICS
    for found in MODES.values():
        architecture = ARCHITECTURES[found.architecture]
        for layer in found.layers:
            core = (layer.core.fraction_bits, layer.core.step, layer.core.step_tf32)
            assert core == (architecture.fraction_bits, architecture.block, architecture.block_tf32)
    with pytest.raises(UsageError, match="numerics='h200' is not accepted: one of ieee, h100"):
        mode("h200")


@triton.jit
def approximate(x_ptr, y_ptr, exp2_ptr, exp_ptr, log2_ptr, quotient_ptr):
    i = tl.program_id(0) * 256 + tl.arange(0, 256)
    x = tl.load(x_ptr + i)
    tl.store(exp2_ptr + i, tl.exp2(x))
    tl.store(exp_ptr + i, tl.exp(x))
    tl.store(log2_ptr + i, tl.log2(tl.abs(x)))
    tl.store(quotient_ptr + i, x / tl.load(y_ptr + i))


def computed(name, x, y):
    outputs = [torch.empty_like(x) for _ in range(4)]
    with faithful(*mode(name).layers) as opened:
        assert current() is MODES[name]
        approximate[(len(x) // 256,)](x, y, *outputs)
        assert not opened.fallbacks
    assert current() is MODES["ieee"]
    return [output.numpy().astype(np.float64) for output in outputs]


def inputs():
    generator = np.random.default_rng(1)
    x = generator.uniform(-130, 5, 8192)
    x[:512] = generator.uniform(0.4, 2.1, 512)
    x[512:1024] = np.arange(-256, 256) / 2
    x[1024:1040] = [0.0, -0.0, 1, -math.inf, math.inf, math.nan, 1e-40, -1e-40, 128, 127.99999, -126, -126.5, -127, 1e30, -1e30, 2]  # fmt: skip
    y = generator.standard_normal(8192) * 2.0 ** generator.integers(-20, 20, 8192)
    y[1024:1030] = [1, 1, 1, 1, 1, 0]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def ulp(x):
    return np.spacing(np.abs(x).astype(np.float32)).astype(np.float64)


@pytest.mark.parametrize("name", [name for name in MODES if name.startswith("h100")])
def test_approximations_keep_their_documented_errors(name):
    x, y = inputs()
    exp2, exp, log2, quotient = computed(name, x, y)

    x, y = x.numpy().astype(np.float64), y.numpy().astype(np.float64)
    with np.errstate(all="ignore"):
        true, power, logarithm, ratio = np.exp2(x), np.exp(x), np.log2(np.abs(x)), x / y
    small, plain = 2.0**-126, np.isfinite(x) & (x < 127)

    assert np.all((exp2 == 0) | (exp2 >= small) | np.isnan(exp2)), "flushed"
    assert np.all(exp2[x == 0] == 1)
    assert exp2[1027] == 0
    assert exp2[1028] == math.inf
    assert np.isnan(exp2[1029])
    kept = plain & (true > 2 * small)
    error = (exp2[kept] - true[kept]) / ulp(true[kept])
    shift = np.abs(exp2[kept] - true[kept].astype(np.float32)) / true[kept]
    assert shift.max() <= 4 * 2.0**-24 * (1 + 1e-6)
    assert bool(shift.max() > 3.5 * 2.0**-24) is (name != "h100+0ulp")
    kept = (x < 88) & (power > 2 * small)
    assert np.all(np.abs(exp[kept] - power[kept]) <= (5 + 2 * np.abs(x[kept])) * 2.0**-24 * power[kept] * (1 + 1e-3))

    near = (np.abs(x) > 0.5) & (np.abs(x) < 2)
    finite = np.isfinite(x) & (np.abs(x) >= small)
    allowed = 2.0**-22 * np.where(near, 1, np.abs(logarithm))
    assert np.all(np.abs(log2[finite] - logarithm[finite]) <= allowed[finite])
    assert log2[1026] == 0
    assert log2[1030] == -math.inf

    kept = np.isfinite(ratio) & (np.abs(ratio) > small)
    assert np.all(np.abs(quotient[kept] - ratio[kept]) <= 2 * ulp(ratio[kept]) * (1 + 1e-9))
    if name in ("h100+2ulp", "h100-2ulp"):
        sign = 1 if "+" in name else -1
        moved = plain & (true > 2 * small) & (np.abs(x) >= small)
        assert np.all(sign * (exp2[moved] - true[moved]) > 0)
        assert np.all(sign * (np.abs(quotient[kept]) - np.abs(ratio[kept])) > 0)
    if name == "h100":
        assert {-2, -1, 0, 1, 2} <= {int(s) for s in np.round(error)}
        assert all(
            np.array_equal(a, b, equal_nan=True)
            for a, b in zip(computed(name, *inputs()), (exp2, exp, log2, quotient), strict=True)
        )


SHAPES = ((17, 33, 16, 16), (40, 20, 32, 24), (5, 70, 40, 64), (33, 33, 128, 16))
MASKS = (Mask(), Mask(causal="top-left"), Mask(causal="bottom-right"), None)
REGIMES = ("normal", "logits-1e2", "ties", "tiny", "v-cancelling", "near-ties")


def cases():
    """All shapes, masks, dtypes and regimes met by one another once or more, without their product."""
    formats = [("fp16", "ieee"), ("bf16", "ieee"), ("fp32", "ieee"), ("fp32", "tf32"), ("fp32", "tf32x3")]
    for n in range(30):
        seq_q, seq_k, dim_qk, dim_v = SHAPES[n % 4]
        seq_q = min(seq_q, seq_k)
        dtype, precision = formats[n % 5]
        mask = MASKS[n // 2 % 4] or Mask(tree=tuple(i // 2 - (i == 0) for i in range(seq_q)))
        regime = REGIMES[n % 6 if n < 18 else (n + 1) % 6]
        yield Case(
            dtype=dtype, precision=precision, seq_q=seq_q, seq_k=seq_k, dim_qk=dim_qk, dim_v=dim_v,
            heads_q=2, heads_kv=1 + n % 2, mask=mask, launch=(("block_m", 16), ("block_n", 16 << n % 3)),
            values=Values(regime=regime, seed=n),
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", fast_one_in(1, ["h100-2ulp", "h100", "a100", "h100+2ulp"], kept=4))
def test_the_bundled_kernels_stay_within_their_bounds(name):
    worst = {}
    with faithful(*mode(name).layers):
        for case in cases():
            assert BUNDLED.supports.refusal(case) is None
            assert BUNDLED.form(case).architecture == MODES[name].architecture
            result = judge_case(BUNDLED, case, Plan.only("accuracy", case))
            assert result.evidence == f"interpreter ({name})"
            assert not result.failures, (result.case, result.failures)
            assert not any(v.status.value == "error" for v in result.verdicts), result.verdicts
            for stats in result.stats:
                worst[case.dtype, stats.output] = max(
                    worst.get((case.dtype, stats.output), 0.0), float.fromhex(stats.worst)
                )
    assert len(worst) >= 15
    assert max(worst.values()) <= 1
    print(name, *(f"{dtype} {output} {ratio:.3f}" for (dtype, output), ratio in sorted(worst.items())))
