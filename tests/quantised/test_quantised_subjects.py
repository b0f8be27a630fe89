"""Kernels of quantised K and V in plain torch: right ones are within their bounds, wrong ones are not."""

import math

import pytest
import torch

from flashverify import judge_case, parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.judge.verdict import from_hex
from flashverify.numerics import Form
from flashverify.truth import Truth, inputs_of
from tests.quantised.plain import FORMS, plain

SHAPE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=33 dim_qk=16 dim_v=16 klen=33,20 padding=nan backward=no"
CHECKS = ("accuracy", "nonfinite", "padding", "memory")


def judged(subject, quantised, more=""):
    return judge_case(subject, parse_case(f"{SHAPE} quantised={quantised} {more}"), checks=CHECKS)


def closest(result, output="o"):
    return max(from_hex(s.worst) for s in result.stats if s.output == output)


RIGHT = (
    ("operand", "e4m3/token/varied", "dtype=bf16 causal=bottom-right"),
    ("operand", "int8/head/fitted/zeros", "regime=tiny"),
    ("operand", "int4/tensor/zero", ""),
    ("narrow", "e5m2/block5/coarse", "regime=logits-1e2 dtype=bf16"),
    ("narrow", "int4/token/subnormal", ""),
    ("folded", "e4m3/token/varied", "regime=tiny"),
    ("folded", "int8/block5/varied/zeros", "dtype=bf16 causal=bottom-right"),
    ("folded", "e5m2/head/saturated", ""),
    ("folded", "e4m3/token/varied/q", "regime=tiny causal=bottom-right"),
    ("folded", "int8/block5/subnormal/zeros/q", "dtype=bf16"),
    ("operand", "e5m2/head/coarse/q", "regime=logits-1e2"),
    ("narrow", "e4m3/token/varied/q", "dtype=bf16"),
)


@pytest.mark.parametrize(("mode", "quantised", "more"), RIGHT)
def test_a_right_kernel_of_each_way_to_dequantise_is_within_its_bounds(mode, quantised, more):
    assert not judged(plain(mode), quantised, more).failures


@pytest.mark.parametrize("mode", ["last", "fp8"])
@pytest.mark.parametrize("quantised", ["e4m3/head/fitted", "e4m3/tensor/tails", "e4m3/head/subnormal"])
def test_a_right_kernel_with_the_scale_of_v_on_the_result_is_within_its_bounds(mode, quantised):
    assert not judged(plain(mode), quantised).failures


@pytest.mark.parametrize("mode", ["operand", "narrow", "folded"])
def test_a_kernel_that_declares_nothing_is_judged_by_the_widest_way(mode):
    assert not judged(plain(mode, form=Form()), "int8/token/varied").failures


def test_each_way_has_a_bound_of_its_own():
    """In bf16 a folded scale costs roundings of fp32 alone, an operand one of 2^-9, a narrow scale two."""
    case = parse_case(f"{SHAPE} dtype=bf16 quantised=e4m3/token/varied")
    inputs, _ = inputs_of(materialize(case)[0])

    bounds = {
        mode: Truth(inputs, "bf16", FORMS[mode]).forward()["lse"][1].bound for mode in ("folded", "operand", "narrow")
    }
    seen = torch.isfinite(bounds["narrow"]) & (bounds["narrow"] > 0)

    operand, narrow = (bounds[mode][seen] for mode in ("operand", "narrow"))
    assert bool((bounds["folded"][seen] * 20 < operand).all())
    assert bool((operand * 1.9 < narrow).all())
    assert bool((narrow < operand * 2.1).all())


def swapped(_, s_k, s_v):
    return s_v, s_k


def twice(_, s_k, s_v):
    return s_k * s_k, s_v


def next_key(_, s_k, s_v):
    return s_k.roll(-1, 2), s_v


def without(_, s_k, s_v):
    return s_k, torch.ones_like(s_v)


@pytest.mark.parametrize(
    ("mode", "scales"), [("operand", swapped), ("folded", twice), ("folded", next_key), ("operand", without)]
)
def test_wrong_scales_are_seen(mode, scales):
    assert judged(plain(mode, scales=scales), "e4m3/token/varied").failures


@pytest.mark.parametrize("mode", ["operand", "folded"])
@pytest.mark.parametrize("q_scales", [torch.ones_like, torch.square, lambda s: s.roll(1, 2)])
def test_wrong_scales_of_q_are_seen(mode, q_scales):
    assert judged(plain(mode, q_scales=q_scales), "e4m3/token/varied/q").failures


def test_fp8_products_of_q_and_k_have_room_for_the_accumulator_of_a_matrix_unit_alone():
    """About 14 bits of a sum on a GPU; in fp32 there is nothing to allow."""
    case = parse_case(f"{SHAPE} dtype=bf16 quantised=e4m3/token/varied/q")
    inputs, _ = inputs_of(materialize(case)[0])

    def bound(products, architecture):
        form = Form(dequantised="folded", products=products, architecture=architecture)
        return Truth(inputs, "bf16", form).forward()["lse"][1].bound.nan_to_num(posinf=0.0).sum()

    assert bound("fp8_qk", "sm_90") > 20 * bound("input", "sm_90")
    assert bound("fp8", "sm_90") == bound("fp8_qk", "sm_90")
    assert bound("fp8_pv", "sm_90") == bound("input", "sm_90")
    assert bound("fp8", "ieee") < 2 * bound("input", "ieee")


@pytest.mark.parametrize("quantised", ["int8/head/fitted/zeros", "int4/token/fitted"])
def test_zero_points_that_are_left_out_are_seen(quantised):
    assert judged(plain(shift=False), quantised).failures


def test_weights_without_a_factor_are_seen_where_they_are_all_of_a_row(monkeypatch):
    """Of 63 equal small weights each is below half the least number of e4m3: they vanish from the sum over V alone."""
    case = parse_case("fv1 seq_q=1 seq_k=64 dim_qk=16 dim_v=16 quantised=e4m3/head/tails seed=9 backward=no")

    right = judge_case(plain("fp8"), case, checks=CHECKS)
    monkeypatch.setattr("tests.quantised.plain.E4M3_FACTOR", 1.0)
    wrong = judge_case(plain("fp8"), case, checks=CHECKS)

    assert not right.failures
    assert {(v.check, v.output) for v in wrong.failures} == {("accuracy", "o")}


def test_the_error_of_quantisation_is_named_beside_the_verdict():
    """Of 8 bits it is 16 times that of 4 bits, and no part of any ratio."""
    found = {
        codes: judge_case(plain(), parse_case(f"{SHAPE} quantised={codes}/head/fitted")) for codes in ("int8", "int4")
    }
    errors = {codes: {e.output: from_hex(e.rms) for e in result.quantisation} for codes, result in found.items()}

    assert not any(result.failures for result in found.values())
    assert errors["int4"]["o"] > 8 * errors["int8"]["o"] > 0
    assert errors["int4"]["lse"] > 8 * errors["int8"]["lse"] > 0
    assert all(closest(result) < 1 for result in found.values())
    assert math.isfinite(from_hex(found["int4"].quantisation[0].largest))
    plain_case = parse_case("fv1 seq_q=3 seq_k=5 dim_qk=8 dim_v=8 backward=no")
    assert judge_case("standard", plain_case, checks=("accuracy",)).quantisation == ()
