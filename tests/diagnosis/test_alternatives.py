"""A semantics accounts for every way in which one mistake shows."""

import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.observe import look
from tests.diagnosis.planted import Plain, planted

LN2 = math.log(2.0)


def answer(subject, text, name):
    (semantics,) = (each for each in SEMANTICS if each.name == name)
    return Claim(semantics).answer(look(subject, parse_case(f"fv1 dim_qk=8 dim_v=8 dtype=fp32 seed=3 {text}")))


class InTheWeights(Plain):
    """The logits lack a factor; the scale of dQ and dK is right."""

    def scale(self, problem):
        return problem.scale * LN2

    def dq_factor(self, problem):
        return 1 / LN2

    dk_factor = dq_factor


class Everywhere(InTheWeights):
    def dq_factor(self, problem):
        return 1.0

    dk_factor = dq_factor


@pytest.mark.parametrize("subject", [InTheWeights, Everywhere])
def test_a_wrong_scale_may_be_that_of_the_weights_alone(subject):
    assert answer(subject(), "seq_q=5 seq_k=7", "log2e-missing") is Answer.CLEAR
    assert answer(subject(), "seq_q=5 seq_k=7", "log2e-twice") is Answer.OTHERWISE


def test_a_row_that_sees_the_one_before_it_does_so_in_a_tree_and_in_a_bitmap():
    def previous(self, problem, bits):
        bits = Plain.pattern(self, problem, bits).clone()
        for row in range(1, min(bits.shape[-2:])):
            bits[..., row, row - 1] = True
        return bits

    bitmap = "seq_q=5 seq_k=7 bitmap=128,3"
    assert answer(planted(pattern=previous), bitmap, "tree-previous-node") is Answer.CLEAR
    assert answer(planted(pattern=lambda s, p, bits: ~bits), bitmap, "tree-previous-node") is Answer.OTHERWISE


@pytest.mark.parametrize("name", [s.name for s in SEMANTICS if s.name.startswith("softcap")])
def test_a_softcap_on_a_case_without_keys_says_nothing(name):
    assert answer(planted(), "seq_q=3 seq_k=0 softcap=2 alibi=yes", name) in (Answer.SILENT, Answer.RIGHT)


def test_a_forward_walks_over_no_queries():
    def behind_whole_tiles(self, see):
        row, key = torch.arange(see.shape[2])[:, None], torch.arange(see.shape[3])
        return see & (row >= (key // 16 * 16 + 31) // 32 * 32)

    text = "seq_q=66 seq_k=66 causal=top-left"
    forward, backward = planted(drop_keys=behind_whole_tiles), planted(backward_see=behind_whole_tiles)
    assert answer(forward, f"{text} backward=no", "walk-begin-rounded-up") is Answer.OTHERWISE
    assert answer(backward, text, "walk-begin-rounded-up") is Answer.CLEAR


def test_a_walk_that_skips_what_a_prefix_opens_does_not_round_its_begin():
    def before_the_diagonal(self, see):
        row, key = torch.arange(see.shape[2])[:, None], torch.arange(see.shape[3])
        return see & (key // 64 * 64 <= row)

    skipping = planted(backward_see=before_the_diagonal)
    assert answer(skipping, "seq_q=66 seq_k=66 causal=top-left prefix=66", "walk-begin-rounded-up") is Answer.OTHERWISE
