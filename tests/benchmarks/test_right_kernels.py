"""Right kernels in odd conventions: none is flagged. `python -m right_kernels` puts them to hundreds of cases each."""

import pytest
from right_kernels.kernels import KERNELS

from flashverify.campaign.worker.search import draw
from flashverify.case.space.strategies import cases
from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.judge.verdict import Status

_STORED = (
    # A subnormal product of dS and the scale, which autograd makes before its dots.
    "fv1 heads_q=2 heads_kv=2 seq_q=37 seq_k=37 dim_qk=72 dim_v=72 dtype=fp32 scale=1e-30 causal=top-left regime=logits-1e2 seed=151 padding=-inf dlse=yes",
    "fv1 seq_q=9 seq_k=20 dim_qk=16 dim_v=16 dtype=bf16 regime=v-positive causal=top-left",
)


@pytest.mark.parametrize("text", _STORED)
def test_autograd_is_right_without_a_declaration(text):
    result = judge_case(KERNELS["autograd_of_the_definition"], parse_case(text), Plan(checks=("accuracy",)))

    assert not result.failures
    assert not result.warnings


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_is_not_flagged(name):
    kernel = KERNELS[name]

    for case in draw(cases(kernel.supports), 2, 3):
        result = judge_case(kernel, case, Plan(checks=("accuracy", "nonfinite")))
        assert {verdict.status for verdict in result.verdicts} <= {Status.PASS, Status.EXEMPT}, str(case)
        assert not result.warnings
