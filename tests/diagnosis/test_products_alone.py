"""Operands that are rounded in one product alone are said to be that, with the product."""

import pytest
import torch

from tests.diagnosis.stepwise import assign, stepwise
from tests.diagnosis.test_precision import bf16, words
from tests.fast_tier import fast_one_in

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 "


def tf32(x):
    """Cut off, as a matrix unit cuts."""
    return (x.float().view(torch.int32) & -(1 << 13)).view(torch.float32).double()


def fp16(x):
    return x.to(torch.float16).double()


def backward_logits(s):
    s.z = torch.where(s.see, s.scale * (tf32(s.q) @ tf32(s.k).mT), -torch.inf)


DEFECTS = (
    (
        "dV look like P and dO truncated to tf32 in the product that makes dV",
        {"at_heads": assign(dv=lambda s: tf32(s.weights).mT @ tf32(s.do))},
    ),
    (
        "dK look like dS and Q rounded to bf16 in the product that makes dK",
        {"at_heads": assign(dk=lambda s: s.scale * (bf16(s.inner).mT @ bf16(s.q)))},
    ),
    (
        "dQ look like K rounded to fp16 in the product that makes dQ",
        {"at_heads": assign(dq=lambda s: s.scale * (s.inner @ fp16(s.k)))},
    ),
    (
        "dO and V truncated to tf32 in the product that makes dP",
        {"at_rows": assign(dp=lambda s: tf32(s.do) @ tf32(s.v).mT)},
    ),
    ("Q and K truncated to tf32 in the product that makes the logits", {"at_start": backward_logits}),
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("said", "defect"), fast_one_in(2, (pytest.param(*x, id=f"{n}") for n, x in enumerate(DEFECTS)), kept=2)
)
def test_the_product_is_said(said, defect):
    found = words(stepwise(**defect), CASE)
    assert found is not None
    assert said in found.sentence
