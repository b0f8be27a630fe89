"""Quantised cases: codes bit for bit, their tensors, and the values that they stand for."""

import dataclasses

import numpy as np
import pytest
import torch

from flashverify import Case, Supports, UsageError, parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.case.quantised.codes import CODES, packed, unpacked
from flashverify.case.quantised.dequantised import dequantised
from flashverify.case.quantised.quantised import SCALE_KINDS, Quantised, simpler_quantised
from flashverify.case.space.fit import fitted
from flashverify.errors import CaseTextError

PLAIN = "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=3 seq_k=11 dim_qk=8 dim_v=16 backward=no"


def problem_of(quantised, more=""):
    return materialize(parse_case(f"{PLAIN} quantised={quantised} {more}"))[0]


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_float_code_is_the_number_that_torch_reads(name):
    codes = torch.arange(256, dtype=torch.uint8)

    numbers = codes.view(getattr(torch, CODES[name].library)).double().numpy()

    assert np.array_equal(numbers, CODES[name].numbers, equal_nan=True)


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_floats_are_rounded_to_the_code_that_torch_rounds_to(name):
    """Every number of the format, the middle of every two, and both sides of it."""
    form, dtype = CODES[name], getattr(torch, CODES[name].library)
    finite = np.unique(form.numbers[np.isfinite(form.numbers)])
    middle = (finite[1:] + finite[:-1]) / 2
    beside = np.concatenate([np.nextafter(np.float32(middle), np.float32(side)) for side in (-np.inf, np.inf)])
    x = np.concatenate([finite, middle, beside, [form.highest * 1.02, -form.highest * 4, -0.0]]).astype(np.float32)

    by_torch = torch.from_numpy(x).clamp(form.lowest, form.highest).to(dtype).view(torch.uint8).numpy()

    found = form.encode(x.astype(np.float64))
    assert np.array_equal(form.numbers[found], form.numbers[by_torch])
    assert np.array_equal(found[x != 0], by_torch[x != 0])


def test_numbers_that_no_code_holds_become_its_own_or_the_end_of_its_range():
    odd = np.array([np.nan, np.inf, -np.inf, 1e9, -1e9])

    assert list(CODES["e4m3"].encode(odd)) == [0x7F, 0x7F, 0xFF, 0x7E, 0xFE]
    assert list(CODES["e5m2"].encode(odd)) == [0x7F, 0x7C, 0xFC, 0x7B, 0xFB]
    assert list(CODES["int8"].encode(odd).view(np.int8)) == [0, 127, -128, 127, -128]
    assert list(CODES["int4"].encode(odd)) == [8, 15, 0, 15, 0]


def test_two_codes_of_four_bits_lie_in_a_byte_the_even_channel_low():
    codes = np.array([[1, 2, 15, 0]], dtype=np.uint8)

    assert packed(codes).tolist() == [[0x21, 0x0F]]
    assert np.array_equal(unpacked(packed(codes)), codes)


@pytest.mark.parametrize(
    "text",
    [
        "e4m3/tensor/fitted",
        "int8/block5/varied/zeros",
        "int4/token/raw",
        "e5m2/head/tails",
        "int8/token/varied/zeros/q",
        "e4m3/block5/raw/q",
    ],
)
def test_the_text_of_a_quantised_case_gives_it_back(text):
    case = parse_case(f"{PLAIN} quantised={text}")

    assert f"quantised={text}" in str(case)
    assert parse_case(str(case)) == case


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("e4m3", "codes/scales/kind"),
        ("e4m3/tensor/fitted/zeros", "zeros"),
        ("fp8/tensor/fitted", "codes"),
        ("int4/token/fitted/q", "q"),
        ("int8/token/fitted/q/zeros", "codes/scales/kind"),
        ("int8/row/fitted", "scales"),
        ("int8/block0/fitted", "block"),
        ("int8/head/fitted expand=yes", "expand=no"),
        ("int8/block5/fitted page_size=16", "page_size that is a multiple of 5, not 16"),
        ("int4/head/fitted dim_qk=7", "even head dims"),
    ],
)
def test_what_no_case_can_have_is_refused_by_name(text, named):
    head, *more = text.split(" ")
    words = [word for word in PLAIN.split(" ") if word.split("=")[0] not in {m.split("=")[0] for m in more}]

    with pytest.raises(CaseTextError, match=named):
        parse_case(" ".join([*words, f"quantised={head}", *more]))
    with pytest.raises(UsageError, match="backward=no"):
        Case(quantised=Quantised())


@pytest.mark.parametrize("codes", list(CODES))
@pytest.mark.parametrize("scales", ["tensor", "head", "token", "block4"])
def test_a_fitted_cache_stands_for_values_near_its_own(codes, scales):
    """Each value within half a spacing of its code: of floats u times its size or half the least number, of integers half a scale."""
    problem = problem_of(f"{codes}/{scales}/fitted")
    found = dequantised(problem)

    for name, scale in (("k", found.k_scale), ("v", found.v_scale)):
        value, exact, form = getattr(found, name), getattr(problem, name).double(), CODES[codes]
        room = exact.abs() * form.u + scale * form.least / 2 if form.is_float else scale / 2
        assert bool(((value - exact).abs() <= room * (1 + 1e-6)).all())


def test_zero_points_use_the_whole_range_of_a_cache_that_is_all_positive():
    plain, shifted = (problem_of(f"int8/head/fitted{z}", "regime=v-positive") for z in ("", "/zeros"))

    assert int(plain.v_codes.view(torch.int8).min()) >= 0
    assert int(shifted.v_codes.view(torch.int8).min()) < -100
    assert float(dequantised(shifted).v_scale[0, 0, 0]) < float(dequantised(plain).v_scale[0, 0, 0]) * 0.6


def test_scales_of_each_kind_are_what_the_kind_says():
    found = {kind: problem_of(f"e4m3/token/{kind}", "seed=1").k_scale for kind in SCALE_KINDS}

    assert bool((torch.frexp(found["power"])[0] == 0.5).all())  # a power of two
    assert bool((found["zero"] == 0).any())
    assert bool((found["zero"] > 0).any())
    assert bool(((found["subnormal"] > 0) & (found["subnormal"] < 2.0**-126)).any())
    assert bool((found["saturated"] < found["fitted"]).all())
    assert bool((found["coarse"] > found["fitted"]).all())


def test_a_saturated_cache_holds_the_largest_code_and_a_coarse_one_subnormal_codes():
    saturated, coarse = (problem_of(f"e4m3/head/{kind}").k_codes & 0x7F for kind in ("saturated", "coarse"))

    assert int((saturated == 0x7E).sum()) > 10
    assert int(((coarse > 0) & (coarse < 8)).sum()) > 10


def test_padding_fills_codes_and_scales_behind_the_declared_keys_alone():
    problems = {p: problem_of("e4m3/block4/varied", f"klen=5,11 padding={p}") for p in ("zero", "nan")}

    for name in ("k_codes", "k_scale"):
        zero, nan = (getattr(problems[p], name) for p in ("zero", "nan"))
        inside = 5 if name == "k_codes" else 2
        assert torch.equal(zero[0, :, :inside], nan[0, :, :inside])
        assert torch.equal(zero[1], nan[1])
    assert bool(torch.isnan(problems["nan"].k_scale[0, :, 2:]).all())
    assert bool((problems["nan"].k_codes[0, :, 5:] == 0x7F).all())


def test_a_nan_of_the_case_is_a_code_of_its_own():
    problem = problem_of("e4m3/head/fitted", "edits=v:1,0,3,2:nan")

    assert int(problem.v_codes[1, 0, 3, 2]) & 0x7F == 0x7F
    assert int(torch.isnan(dequantised(problem).v).sum()) == 1


def test_the_view_has_the_dtype_of_its_format_over_the_same_memory():
    problem = problem_of("e5m2/token/fitted", "layout=bshd gap=3")
    view = problem.quantised()

    assert view.k.dtype == torch.float8_e5m2
    assert view.k.data_ptr() == problem.k_codes.data_ptr()
    assert view.keys_per_scale == 1
    assert problem.quantised(as_bytes=True).v.dtype == torch.uint8
    with pytest.raises(UsageError, match=r"Supports\(quantised=...\)"):
        materialize(parse_case(PLAIN))[0].quantised()


def test_a_quantised_subject_is_drawn_quantised_cases_alone_and_a_plain_one_none():
    quantised = Supports(quantised=("int8", "e4m3"), quantised_scales=("block",), backward=False)

    drawn = [fitted(quantised, parse_case(PLAIN), number) for number in range(4)]

    assert {case.quantised.codes for case in drawn} == {"int8", "e4m3"}
    assert "k and v without codes" in quantised.refusal(parse_case(PLAIN))
    assert "quantised" in Supports(backward=False).refusal(drawn[0])
    for field, value in (("backward", True), ("masks", ("packed",))):
        with pytest.raises(UsageError, match=field):
            dataclasses.replace(quantised, **{field: value})
    with pytest.raises(UsageError, match=r"page_sizes.*multiples of a block"):
        dataclasses.replace(quantised, page_sizes=(16, 24), quantised_blocks=(16,))


def test_simpler_ones_end_at_the_plainest():
    found = Quantised(codes="e5m2", scales="block", block=64, kind="raw")
    while steps := list(simpler_quantised(found)):
        found = steps[0]

    assert found == Quantised(codes="int8", scales="tensor")
