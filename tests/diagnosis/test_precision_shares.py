"""What each tile adds to a gradient in 16 bits is told from a gradient that is rounded as a whole."""

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.precision import precision_words
from flashverify.judge.verdict import Status, Verdict
from tests.diagnosis.stepwise import stepwise

CASE = "fv1 seq_q=5 seq_k=70 dim_qk=16 dim_v=16 dtype=fp32"
SHARE = "what each tile adds to the gradient, rounded to bf16 before the sum"


def _in_tiles(s):
    tiles = range(0, s.k.shape[2], 32)
    s.dq = s.scale * sum((s.inner[..., at : at + 32] @ s.k[:, :, at : at + 32]).bfloat16().double() for at in tiles)


def _as_a_whole(s):
    s.dq = s.scale * (s.inner @ s.k).bfloat16().double()


@pytest.mark.parametrize(("change", "said"), [(_in_tiles, True), (_as_a_whole, False)])
def test_shares_of_tiles_in_16_bits_are_said(change, said):
    verdict = Verdict("accuracy", Status.FAIL, output="dq", error="bound")
    found = precision_words(stepwise(at_end=change), parse_case(CASE), verdict, Clock().end(60.0))
    assert (SHARE in found.sentence) is said
