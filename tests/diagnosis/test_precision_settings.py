"""Numbers of a problem that a kernel keeps with too few bits."""

import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.diagnose import diagnose
from tests.diagnosis.planted import planted

TEXT = "fv1 heads_q=2 heads_kv=2 seq_q=14 seq_k=33 dim_qk=24 dim_v=16 backward=no "
LOG2E = 1.0 / math.log(2.0)


def rounded(x, dtype):
    return float(torch.tensor(x).to(dtype))


def cap(self, z, given):
    number = rounded(given, torch.bfloat16)
    return number * torch.tanh(z / number)


KEPT = [
    ("dtype=fp16", {"scale": lambda s, p: rounded(p.scale, torch.float16)}, "the scale, rounded to fp16 ("),
    (
        "dtype=fp32",
        {"scale": lambda s, p: rounded(p.scale * LOG2E, torch.bfloat16) / LOG2E},
        "the scale times log2(e), rounded to bf16 (",
    ),
    ("dtype=fp32 softcap=3.3 scale=2.0", {"cap": cap}, "the softcap, rounded to bf16"),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("more", "defect", "said"), [pytest.param(*x, id=x[2]) for x in KEPT])
def test_a_setting_of_too_few_bits_is_said(more, defect, said):
    subject, case = planted(**defect), parse_case(TEXT + more)
    verdict = judge_case(subject, case, Plan.only("accuracy", case)).failures[0]

    assert f"look like {said}" in diagnose(subject, case, verdict, seconds=300).sentence
