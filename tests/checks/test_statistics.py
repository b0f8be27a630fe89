"""Errors that no bound of an element can see, and that all elements together show."""

import dataclasses
import math

import pytest
import torch

from flashverify import corrected_interpreter, load_subject, parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.statistics import SPEC, judged
from flashverify.checks.statistics.heads import unasked_heads
from flashverify.judge.verdict import Status
from flashverify.numerics import Form
from flashverify.numerics.weighted_sums import WeightedSum
from flashverify.subjects import Contract, Supports
from flashverify.subjects.hand_written import HandWrittenSubject

CASE = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=96 seq_k=144 dim_qk=16 dim_v=16")
TILE = 24
LOG2_E = math.log2(math.e)


def cut(x, dtype):
    """Cut off where a cast rounds."""
    nearest = x.to(dtype)
    up = nearest.double().abs() > x.abs()
    return torch.where(up, torch.nextafter(nearest, torch.zeros_like(nearest)), nearest)


def rounded(x, dtype):
    return x.to(dtype)


def summed(weights, operand, dtype, narrow):
    """`weights @ operand` over tiles of terms; `narrow` keeps the sum in the dtype."""
    total = torch.zeros(*weights.shape[:-1], operand.shape[-1], dtype=torch.float64)
    for start in range(0, weights.shape[-1], TILE):
        total = total + weights[..., start : start + TILE].double() @ operand[..., start : start + TILE, :].double()
        total = total.to(dtype).double() if narrow else total
    return total


def forward(p, *, cast_p=rounded, narrow=(), log2_e=LOG2_E, row_sum=1.0):
    """A forward in float64 but for the casts of P and of O."""
    q, k, v = p.q.double(), p.k.double(), p.v.double()
    s = q @ k.mT * p.scale
    m = s.amax(-1, keepdim=True)
    s, m = s * (log2_e / LOG2_E), m * (log2_e / LOG2_E)
    w = torch.exp(s - m)
    total = w.sum(-1, keepdim=True) * row_sum
    o = summed(cast_p(w, p.q.dtype), v, p.q.dtype, "o" in narrow) / total
    return o.to(p.q.dtype), (m + total.log()).squeeze(-1).float()


def backward(p, given, *, cast_p=rounded, cast_ds=rounded, narrow=(), first_tiles=1.0):
    """Its backward likewise; the first 32 rows enter dK times `first_tiles`."""
    dtype, q, k, v, do = p.q.dtype, p.q.double(), p.k.double(), p.v.double(), p.do.double()
    weights = torch.exp(q @ k.mT * p.scale - given.lse.double().unsqueeze(-1))
    ds = weights * (do @ v.mT - (do * given.o.double()).sum(-1, keepdim=True))
    cast = cast_ds(ds, dtype)
    by_key = cast.double()
    by_key[..., :32, :] *= first_tiles
    dq = summed(cast, k, dtype, "dq" in narrow) * p.scale
    dk = summed(by_key.mT, q, dtype, False) * p.scale
    dv = summed(cast_p(weights, dtype).mT, do, dtype, "dv" in narrow)
    return tuple(x.to(dtype) for x in (dq, dk, dv))


def subject(form=None, **defect):
    """Everything in float64 but what a kernel rounds to 16 bits; one of these may be done wrongly."""
    of_forward = {name: value for name, value in defect.items() if name in ("cast_p", "narrow", "log2_e", "row_sum")}
    of_backward = {name: value for name, value in defect.items() if name not in ("log2_e", "row_sum")}
    return HandWrittenSubject(
        name="careful",
        function=lambda p: forward(p, **of_forward),
        backward_function=lambda p, given: backward(p, given, **of_backward),
        supports=Supports(dtypes=("fp16", "bf16", "fp32"), scales=("positive",)),
        contract=Contract(reads_outputs=True),
        declared_form=form or Form(architecture="ieee"),
        where="cpu",
    )


@pytest.mark.parametrize("defect", [{}, {"first_tiles": 1 + 2.0**-11}, {"narrow": ("o",)}])
def test_what_accuracy_knows_of_a_pass_is_not_worked_out_again(defect, monkeypatch):
    import flashverify_oracles

    passes, backward_of = [], flashverify_oracles.backward
    monkeypatch.setattr(flashverify_oracles, "backward", lambda *a, **k: passes.append(1) or backward_of(*a, **k))
    alone = judge_case(subject(**defect), CASE, Plan(checks=("statistics",)))
    of_alone = len(passes)
    both = judge_case(subject(**defect), CASE, Plan(checks=("accuracy", "statistics")))
    of_both = len(passes) - of_alone
    passes.clear()
    judge_case(subject(**defect), CASE, Plan(checks=("accuracy",)))

    assert [v for v in both.verdicts if v.check == "statistics"] == list(alone.verdicts)
    assert bool(alone.failures) == bool(defect)
    assert of_alone > 0
    assert of_both == len(passes)


def failures(case=CASE, form=None, **defect):
    judged = judge_case(subject(form, **defect), case, Plan(checks=("accuracy", "statistics")))
    return {(v.check, v.output, v.error) for v in judged.failures}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("regime", ["normal", "v-positive", "outlier", "negative", "logits-1e2", "few-keys"])
def test_a_right_kernel_neither_drifts_nor_spreads(dtype, regime):
    case = dataclasses.replace(CASE, dtype=dtype, values=dataclasses.replace(CASE.values, regime=regime))

    assert failures(case) == set()


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        (
            {"cast_p": cut},
            {("statistics", "o", "drift"), ("statistics", "dv", "drift"), ("statistics", "dv", "spread")},
        ),
        ({"cast_ds": cut}, {("statistics", name, error) for name in ("dq", "dk") for error in ("drift", "spread")}),
        ({"narrow": ("dq",)}, {("statistics", "dq", "spread")}),
        ({"first_tiles": 1 + 2.0**-11}, {("statistics", "dk", error) for error in ("tile", "spread")}),
    ],
    ids=["P cut off", "dS cut off", "dQ in 16 bits", "a tile too large"],
)
def test_what_stays_within_every_bound_is_seen_by_all_elements(defect, found):
    assert failures(**defect) == found


@pytest.mark.parametrize(
    ("dtype", "defect", "seed", "found"),
    [
        ("fp16", {}, 1, set()),
        ("fp16", {"cast_ds": cut}, 0, {"dq", "dk"}),
        ("bf16", {"cast_ds": cut}, 0, {"dk"}),
        ("fp16", {"log2_e": 1.4427}, 1, {"lse"}),
    ],
    ids=["right", "dS cut off in fp16", "dS cut off in bf16", "log2(e) in five digits"],
)
def test_few_keys_show_what_long_sums_of_a_unit_that_truncates_hide(dtype, defect, seed, found):
    case = dataclasses.replace(CASE, dtype=dtype, seq_q=100, seq_k=800, dim_qk=48)
    case = dataclasses.replace(case, values=dataclasses.replace(case.values, regime="few-keys", seed=seed))
    form = Form(architecture="sm_90")
    judged = judge_case(subject(form, **defect), case, Plan(checks=("statistics",)))

    assert found == {v.output for v in judged.failures if v.error == "drift"}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_two_partial_sums_of_16_bits_are_seen_and_another_multiple_of_ds_is_right(dtype):
    few_tiles = dataclasses.replace(CASE, dtype=dtype, seq_q=256, seq_k=3 * TILE)

    assert failures(few_tiles, narrow=("dq",)) == {("statistics", "dq", "spread")}
    for multiple in (1.0, 0.7, 1.3):
        assert failures(few_tiles, cast_ds=lambda x, dtype, m=multiple: rounded(x * m, dtype).double() / m) == set()


def test_the_noise_of_weights_whose_spacing_is_known_is_that_of_their_spacing():
    weights = torch.tensor([1.0, 1.5, 1.999, 2 - 2.0**-13], dtype=torch.float64).view(4, 1, 1)
    given = {"operand": torch.ones(4, 1, 1).double(), "length": 1, "unit": 2.0**-11, "floor": 0.0}
    noise = {
        cast: WeightedSum(weights=weights, cast=cast, **given).noise().flatten() * 3 * 4**11
        for cast in (None, 1, 2**-0.5)
    }

    torch.testing.assert_close(noise[None], weights.flatten().square())
    torch.testing.assert_close(noise[1], torch.tensor([1.0, 1, 1, 4]).double())
    torch.testing.assert_close(noise[2**-0.5], torch.tensor([0.5, 2, 2, 2]).double())


def test_few_groups_and_flat_weights_are_not_asked():
    few = dataclasses.replace(CASE, heads_q=1, heads_kv=1, seq_q=24, seq_k=24)
    flat = dataclasses.replace(CASE, scale=2.0**-8, grad=dataclasses.replace(CASE.grad, backward=False))

    assert not SPEC.applies(subject(), dataclasses.replace(CASE, dtype="fp32", precision="tf32"))
    for case in (few, flat):
        verdicts = judge_case(subject(), case, Plan(checks=("statistics",))).verdicts
        assert verdicts == ()


MIXED = "fv1 batch=2 heads_q=3 heads_kv=3 seq_q=96 seq_k=144 {} regime=normal,ties,v-positive,overflow,weight-ties,subnormal"
"""Two heads of six are spread evenly, both of the first batch entry."""


def test_the_heads_of_even_regimes_are_asked_beside_others(monkeypatch):
    case, alone = parse_case(MIXED.format("")), Plan(checks=("statistics",))

    assert judge_case(subject(), case, alone).verdicts[0].status is Status.PASS
    assert ("statistics", "dk", "tile") in failures(case, first_tiles=1 + 2.0**-11)
    no_head = {name: torch.ones(mask.shape, dtype=torch.bool) for name, mask in unasked_heads(case).items()}
    monkeypatch.setattr(judged, "unasked_heads", lambda _: no_head)
    assert judge_case(subject(), case, alone).verdicts == ()


def test_an_output_leaves_out_the_heads_of_other_regimes():
    case = parse_case("fv1 batch=2 heads_q=4 heads_kv=2 seq_q=9 regime=ties,normal,spikes")
    left_out = unasked_heads(case)

    assert left_out["dk"].flatten().tolist() == [True, False, True, True]
    assert left_out["o"].flatten().tolist() == [True, True, False, False, True, True, True, True]
    assert {3, 4} == {left_out[name].dim() for name in ("lse", "dq")}
    assert unasked_heads(dataclasses.replace(case, values=dataclasses.replace(case.values, regime="ties"))) == {}


def test_a_case_without_an_even_head_or_with_too_few_rows_in_them_is_not_asked():
    uneven = MIXED.format("").replace("normal,", "zeros,").replace("v-positive", "spikes")
    few = "fv1 heads_q=3 heads_kv=3 seq_q=40 seq_k=40 regime=normal,ties,overflow"

    assert not SPEC.applies(subject(), parse_case(uneven))
    assert not SPEC.applies(subject(), parse_case(few))
    assert SPEC.applies(subject(), parse_case(few.replace("ties", "v-positive")))


def test_groups_that_see_one_key_are_not_asked():
    case = parse_case("fv1 heads_q=2 seq_q=28 dim_qk=8 dim_v=8 dtype=bf16 dropout=0.1 backward=no")

    assert SPEC.applies(subject(), case)
    with corrected_interpreter():
        assert judge_case(load_subject("bundled"), case, Plan(checks=("statistics",))).verdicts == ()


@pytest.mark.parametrize(
    "text",
    [
        "batch=2 heads_q=2 heads_kv=2 seq_q=37 seq_k=52 dtype=bf16 scale=0x1p-140 alibi=yes regime=v-positive",
        "batch=2 seq_k=25 dim_qk=8 dtype=bf16 softcap=30 regime=negative",
        "heads_q=4 seq_q=80 seq_k=37 dtype=bf16 scale=1 softcap=1 regime=outlier seed=134",
        "heads_q=4 seq_q=80 seq_k=37 softcap=0.5",
    ],
)
def test_logits_that_are_flat_or_decided_by_biases_are_not_asked(text):
    """All their errors are one error, many times: a merge in float64 was blamed for such cases."""
    assert not SPEC.applies(subject(), parse_case(f"fv1 {text} backward=no"))
