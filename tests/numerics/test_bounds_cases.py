"""The bounds of real cases: never NaN, never negative, and float64 is an oracle wherever they say anything."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings

from flashverify.case.case import Case
from flashverify.case.memory.materialize import materialize
from flashverify.case.space.strategies import CPU, cases
from flashverify.case.supports import Supports
from flashverify.case.text import parse_case
from flashverify.numerics import Form, OutputBound
from flashverify.truth import Truth, inputs_of
from tests.fast_tier import fast_one_in

DTYPES = ("fp16", "bf16", "fp32")
FORMS = (
    Form(),
    Form(gap_c=1.0, kappa=2.0, block_n=64),
    Form(exp="poly", exp_eps=2000.0, scale_ds="before", grad_accum="fp16", grad_accum_of="all", architecture="ieee"),
    Form(row_sum="rounded", max_source="apart", ds_from="p_rounded", n_splits=3, partial_dtype="bf16", gqa_partial="input"),
    Form(prescale_fwd="q", prescale_bwd="k", grad_uses_prescaled=True, dp_init="minus_delta", dot="tf32", bwd_lse_base="e"),
    Form(softcap="tanh", softcap_slope="product", dropout_scale="input", dbias_partial="input", n_splits=2, partial_lse_base="e"),
)  # fmt: skip
# Near the overflow edge the surviving weight meets V = 0: 0 V^2 under an infinite quotient was NaN.
REPORTED = (
    "fv1 batch=3 seq_q=65 seq_k=49 dim_qk=72 dim_v=72 dtype=fp32 scale=-0.125 regime=large seed=92"
    " edits=v:2,0,33,64:0;k:0,0,16,4:1000;v:1,0,23,54:-0 layout=bshd offset=8 padding=-inf",
    "fv1 batch=16 seq_q=231 seq_k=231 dim_qk=32 dim_v=32 dtype=bf16 scale=1 causal=top-left regime=large seed=116"
    " layout=bshd padding=max do=zero",
    "fv1 heads_q=16 heads_kv=16 seq_q=65 seq_k=65 dim_qk=96 dim_v=96 dtype=fp32 scale=10000 causal=top-left"
    " regime=large seed=100 gap=8 offset=8 padding=nan",
    "fv1 batch=2 seq_q=44 seq_k=47 dim_qk=24 dim_v=24 scale=1 causal=top-left regime=overflow seed=182 layout=bshd do=zero",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything(Supports):
    """A subject that accepts every case."""

    precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3")
    masks: tuple[str, ...] = ("causal", "window", "key_lengths", "query_lengths", "tree", "packed", "blocks", "bitmap")
    dim_multiple: int = 1
    empty: bool = True
    scales: tuple[str, ...] = ("positive", "zero", "negative")
    strided: bool = True
    dlse: bool = True
    logits: tuple[str, ...] = ("softcap", "alibi", "bias", "sink")
    dropout: bool = True

    def refusal(self, case: Case) -> str | None:
        return None


def every_bound(case: Case, form: Form) -> dict[str, OutputBound]:
    problem, _ = materialize(case, "cpu")
    inputs, _ = inputs_of(problem)
    truth = Truth(inputs, case.dtype, form)
    found = truth.forward()
    values = {name: bound for name, (_, bound) in found.items()}
    if inputs.do is not None:
        values |= {name: bound for name, (_, bound) in truth.backward().items()}
        # The subject's own results: the oracle's, rounded; where they overflow, the largest finite value.
        largest = torch.finfo(problem.q.dtype).max
        o = found["o"][0].clamp(-largest, largest).to(problem.q.dtype)
        lse = found["lse"][0].nan_to_num(neginf=-math.inf).float()
        values |= {name + "|": bound for name, (_, bound) in truth.conditional(o, lse).items()}
    return values


def require_sound(case: Case, form: Form) -> None:
    for name, x in every_bound(case, form).items():
        assert bool((x.bound >= 0).all()), (name, str(case))
        assert bool((x.self_error >= 0).all()), (name, str(case))
        assert bool(torch.isfinite(x.self_error[torch.isfinite(x.bound)]).all()), (name, str(case))
        assert not bool((x.needs_exact & ~x.uninformative).any()), (name, str(case))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", REPORTED)
def test_reported_cases_have_bounds(text: str, form: Form) -> None:
    require_sound(parse_case(text), form)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(case=cases(Everything(), profile=CPU))
def test_bounds_of_drawn_cases(case: Case) -> None:
    assume(case.batch)
    require_sound(case, FORMS[case.values.seed % len(FORMS)])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", fast_one_in(3, DTYPES, kept=2))
@pytest.mark.parametrize(
    "rest",
    [
        "regime=zeros",
        "regime=zeros do=zero",
        "regime=subnormal do=transposed",
        "regime=subnormal scale=1e-30",
        "regime=tiny do=zero",
        "regime=q-zero do=zero",
        "regime=normal do=zero",
        "regime=normal scale=1e-30",
        "regime=v-positive scale=0",
        "regime=v-cancelling do=zero",
        "regime=integers",
        "regime=v-constant",
        "regime=ties",
    ],
)
def test_underflow_is_not_uninformative(rest: str, dtype: str, form: Form) -> None:
    case = parse_case(
        f"fv1 heads_q=2 seq_q=33 seq_k=40 dim_qk=24 dim_v=24 dtype={dtype} causal=top-left dlse=yes {rest}"
    )
    for name, x in every_bound(case, form).items():
        assert not x.exempt.any(), name
        assert not x.uninformative.any(), name


def test_a_row_that_overflows_exempts_the_hidden_keys_of_its_group() -> None:
    # O overflows, so X is not finite; at a pair that the mask removes 0 meets it, even at keys that no row sees.
    case = parse_case("fv1 batch=2 seq_q=47 seq_k=97 dim_qk=32 dim_v=32 dtype=bf16 causal=top-left regime=overflow")
    found = every_bound(case, Form())
    assert found["o"].exempt.any(-1).any(-1).all()
    assert found["dk"].exempt[:, :, 47:].all()
    assert not found["dv"].exempt[:, :, 47:].any()


@pytest.mark.parametrize("scale", [2.0**-127, 2.0**-140, -(2.0**-149)])
def test_a_scale_that_is_flushed_to_zero_stays_within_the_bound(scale: float) -> None:
    edits = "edits=k:0,0,3,0:0x1p100;q:0,0,9,1:0x1p100"
    case = parse_case(f"fv1 seq_q=16 seq_k=16 dtype=bf16 scale={scale.hex()} {edits}")
    problem, _ = materialize(case, "cpu")
    truth = Truth(inputs_of(problem)[0], case.dtype, Form())
    for name in ("dq", "dk"):
        value, bound = truth.backward()[name]
        assert bool((value.abs() <= bound.total).all()), name
        assert float(value.abs().max()) > 2.0**-60


@pytest.mark.parametrize("form", FORMS[:2])
def test_keys_that_no_row_sees_do_not_widen_the_hull(form: Form) -> None:
    case = parse_case(
        "fv1 seq_q=10 seq_k=41 dim_qk=64 dim_v=8 dtype=bf16 scale=10000 causal=top-left regime=v-constant backward=no"
    )
    o = every_bound(case, form)["o"]
    assert not o.uninformative.any()
    assert float(o.bound.max()) < 2.0**-4


def test_a_matrix_unit_aligns_subnormal_operands_as_if_they_were_normal():
    case = parse_case(
        "fv1 seq_q=16 seq_k=13 dim_v=8 scale=10000 regime=subnormal seed=1 edits=k:0,0,12,7:1000 backward=no"
    )
    inputs, _ = inputs_of(materialize(case)[0])

    def bound(architecture):
        truth = Truth(inputs, "fp16", Form(gap_c=1.0, kappa=2.0, block_n=64, architecture=architecture))
        return float(truth.forward()["lse"][1].total[0, 0, 15])

    error_on_an_h200 = 2.27e-5
    assert bound("ieee") < error_on_an_h200 < bound("sm_90") < 1e-3
