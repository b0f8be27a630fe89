"""Semantics of a subject that returns no LSE."""

from flashverify import Contract, Supports, parse_case, subject
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.observe import look
from tests.checks.naive import attention

CASE = parse_case("fv1 seq_q=3 seq_k=40 dim_qk=8 dim_v=8 dtype=fp32 regime=ascending seed=1 backward=no")


@subject(supports=Supports(backward=False), contract=Contract(lse_base=None))
def output_alone(p):
    return attention(p)[0] * 1.5


def test_what_a_semantics_expects_of_o_needs_no_lse():
    scene = look(output_alone, CASE)
    asked = {
        semantics.name
        for semantics in SEMANTICS
        for alternative in semantics.build(scene)
        if "o" in scene.expect(alternative, frozenset({"o"}))
    }

    assert len(asked) > 50
