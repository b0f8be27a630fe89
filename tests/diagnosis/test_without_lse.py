"""Semantics of a subject that returns no LSE."""

import pytest

from flashverify import Contract, Supports, parse_case, subject
from flashverify.diagnosis.hypotheses.accumulation import ACCUMULATION
from flashverify.diagnosis.hypotheses.rescaling import RESCALING
from flashverify.diagnosis.observe import look
from tests.checks.naive import attention

CASE = parse_case("fv1 seq_q=3 seq_k=40 dim_qk=8 dim_v=8 dtype=fp32 regime=ascending seed=1 backward=no")


@subject(supports=Supports(backward=False), contract=Contract(lse_base=None))
def output_alone(p):
    return attention(p)[0] * 1.5


@pytest.mark.parametrize("semantics", [*RESCALING, *ACCUMULATION], ids=lambda semantics: semantics.name)
def test_what_a_semantics_expects_of_o_needs_no_lse(semantics):
    scene = look(output_alone, CASE)

    for alternative in semantics.build(scene):
        assert "o" in scene.expect(alternative, frozenset({"o"}))
