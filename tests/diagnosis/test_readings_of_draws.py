"""Dropout whose words are compared with another limit, or taken for other numbers."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.weights.draw_limits import draw_limits
from flashverify.diagnosis.readings.weights.effect import effect_of
from flashverify.diagnosis.trials import Trials
from flashverify_oracles import dropout_words
from tests.diagnosis.planted import planted
from tests.fast_tier import fast_one_in

CASE = "fv1 heads_q=2 heads_kv=2 seq_q=5 seq_k=40 dim_qk=16 dim_v=16 dtype=fp32 dropout=0.5 backward=no"


def drops(which):
    """The pairs that are dropped, of the word and of p; which of them count is divided by 1 - p as declared."""

    def kept(self, problem, keep):
        case = problem.case
        row, key = (torch.arange(size).expand(case.batch, -1) for size in (case.seq_q, case.seq_k))
        sequence = torch.arange(case.batch)[:, None].expand(case.batch, case.seq_q)
        given = {"seed": problem.dropout_seed, "offset": problem.dropout_offset, "heads": case.heads_q}
        words = dropout_words(**given, sequence=sequence, row=row, key=key)
        return (~which(words, case.dropout)).double()

    return planted(kept=kept)


def signed(x):
    return x - 2**32 * (x >= 2**31)


SAID = {
    "the word of its draw, taken for a number with a sign, is below p * 2^32, taken so too": lambda w, p: (
        signed(w) < signed(torch.tensor(int(p * 2**32)))
    ),
    "the word of its draw is at least p * 2^32": lambda w, p: w >= int(p * 2**32),
    "the word of its draw without its highest bit is below p * 2^31": lambda w, p: w % 2**31 < int(p * 2**31),
    "the word of its draw is below p^2 * 2^32": lambda w, p: w < int(p * p * 2**32),
    "the lower half of the word of its draw is below p * 2^16": lambda w, p: w % 2**16 < int(p * 2**16),
}


def read(subject):
    trials = Trials(subject, 300)
    scene = trials.scene(parse_case(CASE))
    assert scene.failures
    return readings(trials, scene, "o").sentences


@pytest.mark.one_in(4)
@pytest.mark.parametrize("words", fast_one_in(1, SAID, kept=3))
def test_what_dropout_compares_is_said(words):
    assert read(drops(SAID[words]))[0] == f"Dropout drops a pair where {words}"


def test_words_of_other_pairs_are_no_other_numbers():
    trials = Trials(drops(lambda w, p: w.roll(1, -1) < int(p * 2**32)), 300)

    assert list(draw_limits(effect_of(trials, trials.scene(parse_case(CASE))))) == []
