"""Each way to read codes wrongly, planted in kernels of plain torch, is named; what is right is not."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.hypotheses.quantised import QUANTISED
from tests.quantised import plain as kernels
from tests.quantised.plain import plain

SHAPE = "fv1 batch=2 heads_q=2 heads_kv=2 seq_q=4 seq_k=9 dim_qk=8 dim_v=8 backward=no"
SCALES = {
    ("codes-scale-missing", "of v"): ("e4m3/token/varied", lambda _, k, v: (k, torch.ones_like(v))),
    ("codes-scale-twice", "of k"): ("e4m3/head/varied", lambda _, k, v: (k * k, v)),
    ("codes-scale-swapped", "k on v"): ("int8/token/varied", lambda _, k, v: (k, k)),
    ("codes-scale-of-neighbour", "of k, of the group behind"): (
        "e5m2/token/varied",
        lambda _, k, v: (torch.cat([k[:, :, 1:], k[:, :, -1:]], 2), v),
    ),
    ("codes-scale-of-other-head", "of k and v, of the first sequence"): (
        "e4m3/token/varied",
        lambda _, k, v: (k[:1].expand_as(k), v[:1].expand_as(v)),
    ),
    ("codes-scale-for-all", "the largest of a head"): (
        "e4m3/token/varied",
        lambda _, k, v: (k, v.amax(2, keepdim=True).expand_as(v)),
    ),
}


def named(subject, text):
    case = parse_case(text)
    verdict = next((v for v in judge_case(subject, case, Plan.only("accuracy", case)).failures), None)
    assert verdict is not None, "the planted defect does not show"
    return diagnose(subject, case, verdict, seconds=300)


@pytest.mark.parametrize(("name", "detail"), SCALES)
def test_a_wrong_scale_is_named_with_the_operand_that_has_it(name, detail):
    quantised, scales = SCALES[name, detail]

    found = named(plain("folded", scales=scales), f"{SHAPE} quantised={quantised}")

    assert found.name == name
    assert detail in found.sentence


def test_zero_points_that_are_left_out_are_named():
    found = named(plain("folded", shift=False), f"{SHAPE} quantised=int8/head/fitted/zeros")

    assert found.name == "codes-zero-missing"


def test_a_format_that_is_read_as_another_is_named(monkeypatch):
    right = kernels.numbers

    def wrong(codes, name):
        return right(codes.view(torch.float8_e4m3fn), name) if name == "e5m2" else right(codes, name)

    monkeypatch.setattr(kernels, "numbers", wrong)

    found = named(plain("folded"), f"{SHAPE} quantised=e5m2/head/fitted")

    assert found.name == "codes-format"
    assert "e5m2 as e4m3" in found.sentence


def test_a_scale_of_q_that_is_missing_is_told_from_one_of_k():
    subject = plain("folded", q_scales=torch.ones_like)

    found = named(subject, f"{SHAPE} quantised=e4m3/token/varied/q")

    assert found.name == "codes-scale-missing"
    assert "of q" in found.sentence


def test_there_is_none_without_codes():
    from tests.diagnosis.test_diagnosis_selection import scene

    found, _ = scene("fv1 seq_q=3 seq_k=5 dim_qk=8 dim_v=8 backward=no")

    assert not any(list(wrong.build(found)) for wrong in QUANTISED)
