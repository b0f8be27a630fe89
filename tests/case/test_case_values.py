import dataclasses
import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashverify.case import DTYPES, REGIMES, Case, Edit, Grad, Mask, Storage, Values
from flashverify.case.values import philox
from flashverify.case.values.bits import to_bits
from flashverify.case.values.fill import Fill
from flashverify.case.values.regimes import REGIME_DOC, regime_values
from flashverify.case.values.tensor_bits import tensor_bits
from flashverify.formats import FORMATS
from tests.fast_tier import fast_one_in

GOLDEN = Path(__file__).with_name("golden_values.txt")
BASE = Case(batch=2, heads_q=4, heads_kv=2, seq_q=19, seq_k=37, dim_qk=24, dim_v=40)
SCALES = (None, 1.0, 1e4, 1e-30, 2.0**-140, 0.0, -0.125)


def case_of(regime, dtype="fp32", seed=3, **axes):
    return dataclasses.replace(BASE, dtype=dtype, values=Values(regime=regime, seed=seed), **axes)


def digest(case):
    bits = tensor_bits(case)
    return hashlib.sha256(
        b"".join(bits[name].astype(f"<u{bits[name].itemsize}").tobytes() for name in sorted(bits))
    ).hexdigest()[:32]


def golden_lines():
    cases = [case_of(r, d, grad=Grad(dlse=True)) for r in REGIMES for d in DTYPES]
    cases += [case_of("overflow", d, seed=s) for d in DTYPES for s in (4, 5)]
    cases += [
        case_of("normal", "bf16", storage=Storage(expand=True)),
        case_of("large", "fp16", grad=Grad(do="expanded")),
        case_of("ties,overflow,few-keys", "bf16"),
    ]
    return [f"{digest(case)} {case}" for case in cases]


def logits(case):
    values = regime_values(Fill(case))
    k = np.repeat(values["k"], case.heads_q // case.heads_kv, axis=1)
    return case.softmax_scale * (values["q"] @ k.swapaxes(2, 3)), values


def test_every_regime_has_its_golden_bits():
    assert GOLDEN.read_text(encoding="ascii").splitlines() == golden_lines()


def philox4x64(counter, key):
    """Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011), ten rounds."""
    words, (k0, k1), mask = [counter, 0, 0, 0], key, 2**64 - 1
    for _ in range(10):
        low, high = 0xD2E7470EE14C6C93 * words[0], 0xCA5A826395121157 * words[2]
        words = [(high >> 64) ^ words[1] ^ k0, high & mask, (low >> 64) ^ words[3] ^ k1, low & mask]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    return words


def test_words_are_the_published_philox_stream():
    stream = int.from_bytes(hashlib.sha256(b"q").digest()[:8], "little")
    for seed in (0, 5, 2**64 - 1):
        expected = philox4x64(1, (seed, stream)) + philox4x64(2, (seed, stream))

        assert expected == philox.words(seed, "q", 8).tolist()


def test_words_do_not_depend_on_what_was_drawn_before():
    def fresh(count, first):
        key = (int.from_bytes(hashlib.sha256(b"k").digest()[:8], "little") << 64) | 7
        return np.random.Philox(counter=first // 4, key=key).random_raw(first % 4 + count)[first % 4 :].tolist()

    for count, first in ((5, 0), (3, 7), (0, 2), (1, 2**40 + 3), (8, 0)):
        philox.words(2**64 - 1, "other", count + 1)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(philox.words, 7, "k", count, first=first).result().tolist() == fresh(count, first)
        assert philox.words(7, "k", count, first=first).tolist() == fresh(count, first)


def test_normal_values_have_the_promised_moments():
    sample = philox.normal(1, "sample", (100_000,))

    assert abs(sample.mean()) < 0.02
    assert abs(sample.std() - 1.01) < 0.02
    assert np.abs(sample).max() <= philox.NORMAL_MAX
    assert (sample == sample.astype(np.float32)).all()


def test_integers_cover_their_range():
    assert np.unique(philox.integers(1, "x", (999,), -2, 2)).tolist() == [-2, -1, 0, 1, 2]


def test_every_regime_is_documented():
    assert tuple(REGIME_DOC) == REGIMES


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regime", fast_one_in(3, REGIMES))
def test_values_are_finite_exact_in_fp32_and_stay_finite_in_the_dtype(regime, dtype):
    for scale in SCALES:
        for seed in (0, 1, 2):
            case = case_of(regime, dtype, seed, scale=scale)
            for name, array in regime_values(Fill(case)).items():
                assert (array == array.astype(np.float32)).all(), (name, scale)
            for name, bits in tensor_bits(case).items():
                exponent = bits & FORMATS[case.dtype].poisons["inf"]
                assert (exponent != FORMATS[case.dtype].poisons["inf"]).all(), (name, scale)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize(
    "axes", [{"seq_q": 0}, {"seq_k": 0}, {"batch": 0}, {"seq_q": 1, "seq_k": 1, "dim_qk": 8, "dim_v": 8}], ids=str
)
def test_empty_and_smallest_shapes_have_values(regime, axes):
    for extra in ({}, {"storage": Storage(expand=True), "grad": Grad(do="expanded", dlse=True)}):
        case = case_of(regime, **axes, **extra)
        bits = tensor_bits(case)

        assert case.shape_q == bits["q"].shape
        assert (case.batch, 1 if extra else case.heads_kv, case.seq_k, case.dim_v) == bits["v"].shape


@pytest.mark.parametrize("scale", [None, 1.0, 100.0, 1e-3, -0.5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", [2, 3, 4, 5])
def test_logits_have_the_named_magnitude(power, dtype, scale):
    s, _ = logits(case_of(f"logits-1e{power}", dtype, scale=scale))

    assert 10**power / 3 < np.abs(s).max() < 10**power * 3


@pytest.mark.parametrize("scale", [None, -0.5, 4.0])
def test_regimes_do_what_their_names_say(scale):
    s, _ = logits(case_of("negative", scale=scale))
    assert s.max() < -90

    s, values = logits(case_of("ties", scale=scale))
    assert ((s == s.max(axis=3, keepdims=True)).sum(axis=3) >= 2).all()
    assert (values["v"] >= 0.125).all()

    s, _ = logits(case_of("near-ties", scale=scale))
    assert (s.min(axis=3) > s.max(axis=3) * (1 - 2.0**-20)).all()

    s, _ = logits(case_of("one-hot", scale=scale))
    ordered = np.sort(s, axis=3)
    assert (ordered[..., -1] - ordered[..., -2] > 20).all()

    s, _ = logits(case_of("ascending", scale=scale))
    tiles = np.stack([s[..., start : start + 16].max(axis=3) for start in (0, 16, 32)])
    assert (np.diff(tiles, axis=0) > 1).all()


def test_regimes_of_v_do_what_their_names_say():
    def v(regime, dtype="fp32"):
        return regime_values(Fill(case_of(regime, dtype)))["v"]

    assert (v("v-constant") == v("v-constant")[:, :, :1]).all()
    assert (v("v-positive") > 0).all()
    k_and_v = regime_values(Fill(case_of("v-is-k")))
    assert (k_and_v["v"][..., :24] == k_and_v["k"]).all()
    assert (k_and_v["v"][..., 24:] == 0).all()
    for dtype in DTYPES:
        pairs = v("v-cancelling", dtype)[:, :, :36].reshape(2, 2, 18, 2, 40)
        assert (np.abs(pairs.sum(axis=3)) <= 4).all()
        assert (np.abs(pairs) >= 2.0 ** (FORMATS[dtype].mantissa - 3)).all()
    channels = np.abs(v("outlier")).max(axis=2)
    assert ((channels > 100).sum(axis=2) == 1).all()
    duplicates = regime_values(Fill(case_of("duplicate-keys")))["k"]
    assert (duplicates[:, :, :9] == duplicates[:, :, 9:18]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_small_and_the_large_regimes_stand_at_the_ends_of_the_dtype(dtype):
    entry = FORMATS[dtype]
    smallest_normal = 2.0**entry.emin

    assert all((np.abs(a) < smallest_normal).all() for a in regime_values(Fill(case_of("subnormal", dtype))).values())
    tiny = regime_values(Fill(case_of("tiny", dtype)))
    assert all(np.abs(tiny[name]).max() < smallest_normal * 256 for name in "qkv")
    s, large = logits(case_of("large", dtype))
    assert np.abs(s).max() < 2.0**126
    assert np.abs(large["v"]).max() * 37 < 2.0 ** (entry.emax + 1)
    assert entry.max == np.abs(regime_values(Fill(case_of("overflow", dtype, seed=0)))["v"]).max() or dtype != "fp16"


def test_values_do_not_depend_on_where_they_are_stored():
    case = case_of("ties", "fp16")
    elsewhere = dataclasses.replace(
        case, storage=Storage(layout="bshd", gap=3, offset=1, padding="nan"), launch=(("block_m", 16),)
    )

    assert digest(case) == digest(elsewhere)


def test_edits_overwrite_single_elements_and_round_once():
    just_above_a_tie = 1 + 2.0**-8 + 2.0**-40
    edits = (
        Edit("q", (1, 3, 18, 23), just_above_a_tie),
        Edit("do", (0, 0, 0, 0), math.nan),
        Edit("v", (0, 1, 2, 3), 1e300),
    )
    case = case_of("normal", "bf16")
    edited = dataclasses.replace(case, values=dataclasses.replace(case.values, edits=edits))
    before, after = tensor_bits(case), tensor_bits(edited)

    assert after["q"][1, 3, 18, 23] == 0x3F81
    assert after["do"][0, 0, 0, 0] == 0x7FC0
    assert after["v"][0, 1, 2, 3] == 0x7F80
    assert tuple(int((before[n] != after[n]).sum()) for n in ("q", "do", "v")) == (1, 1, 1)


def test_an_edit_of_an_expanded_head_is_an_edit_of_the_shared_one():
    case = dataclasses.replace(case_of("zeros", "fp16", storage=Storage(expand=True)), mask=Mask())
    edited = dataclasses.replace(case, values=dataclasses.replace(case.values, edits=(Edit("k", (1, 1, 2, 3), 1.0),)))

    assert tensor_bits(edited)["k"][1, 0, 2, 3] == 0x3C00


def test_zero_and_absent_gradients():
    assert not tensor_bits(case_of("normal", grad=Grad(do="zero")))["do"].any()
    assert {"q", "k", "v"} == set(tensor_bits(case_of("normal", grad=Grad(backward=False, dlse=True))))
    assert np.uint32 == tensor_bits(case_of("normal", "fp16", grad=Grad(dlse=True)))["dlse"].dtype


@given(st.floats(width=64), st.sampled_from(DTYPES))
def test_bits_are_rounded_once_to_nearest_even(value, dtype):
    entry = FORMATS[dtype]
    bits = int(to_bits(np.array([value]), dtype)[0])
    sign = 1 << (16 if dtype != "fp32" else 32) - 1
    inf = entry.poisons["inf"]

    def real(pattern):
        exponent, fraction = pattern >> entry.mantissa, pattern & ((1 << entry.mantissa) - 1)
        if exponent == 0:
            return fraction * entry.min_subnormal
        return math.ldexp((1 << entry.mantissa) + fraction, exponent - 1) * entry.min_subnormal

    if math.isnan(value):
        assert entry.poisons["nan"] == bits
        return
    assert (math.copysign(1, value) < 0) == bool(bits & sign)
    size, pattern = abs(value), bits & ~sign
    if pattern == inf:
        assert size >= entry.max + (entry.max - real(inf - 2)) / 2
        return
    error = abs(real(pattern) - size) if size < 1e200 else math.inf
    below = abs(real(pattern - 1) - size) if pattern else math.inf
    above = abs(real(pattern + 1) - size) if pattern + 1 < inf else math.inf
    assert error <= min(below, above)
    assert error < min(below, above) or pattern % 2 == 0


@pytest.mark.parametrize("first", [0, 1, 4, 7, 4096])
def test_a_part_of_a_stream_is_cut_out_of_it(first):
    whole = philox.words(3, "q", first + 9)
    assert (philox.words(3, "q", 9, first=first) == whole[first:]).all()
    assert (philox.normal(3, "q", (9,), first=first) == philox.normal(3, "q", (first + 9,))[first:]).all()


def test_a_normal_value_is_the_sum_of_the_parts_of_its_word():
    parts = philox.words(5, "k", 1000).view(np.uint16).reshape(-1, 4).astype(np.int64)
    assert (philox.normal(5, "k", (1000,)) == (parts.sum(1) - 131070) * (7 * 2.0**-18)).all()
