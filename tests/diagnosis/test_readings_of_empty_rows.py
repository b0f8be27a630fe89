"""What is read of rows that should see no key."""

import dataclasses
import math

import pytest
import torch

from flashverify.case import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain


class EmptyRowsCountEveryKey(Plain):
    def forward(self, problem):
        found = super().forward(problem)
        full = torch.full_like(found.lse, math.log(problem.case.seq_k))
        return dataclasses.replace(found, lse=torch.where(torch.isinf(found.lse), full, found.lse))


def test_rows_that_see_no_key_and_count_every_one_are_no_matter_of_heads():
    trials = Trials(EmptyRowsCountEveryKey(), 300)
    sizes = {(8, 12): "0,5,12", (18, 40): "7,0,30", (33, 21): "0,21,1"}
    texts = [
        f"fv1 batch=3 heads_q=2 heads_kv=2 seq_q={q} seq_k={k} dtype=fp32 backward=no klen={n}"
        for (q, k), n in sizes.items()
    ]
    scene, *_ = [trials.scene(parse_case(text)) for text in texts]

    assert readings(trials, scene, "lse").sentences == (
        "The row sum, as the LSE tells it, counts every key in rows that see none; O's weights are relative to it",
    )


@pytest.mark.thorough
def test_keys_that_a_sequence_without_keys_sees_are_no_matter_of_heads():
    class LengthZeroMeansAll(Plain):
        def forward(self, problem):
            lengths = problem.key_lengths
            if lengths is not None:
                lengths = torch.where(lengths == 0, problem.case.seq_k, lengths)
            return super().forward(dataclasses.replace(problem, key_lengths=lengths))

    trials = Trials(LengthZeroMeansAll(), 300)
    sizes = {(8, 12): "0,5", (18, 40): "0,30", (33, 21): "21,0"}
    texts = [
        f"fv1 batch=2 heads_q=2 heads_kv=2 seq_q={q} seq_k={k} dtype=fp32 backward=no klen={n}"
        for (q, k), n in sizes.items()
    ]
    scene, *_ = [trials.scene(parse_case(text)) for text in texts]

    said = " ".join(readings(trials, scene, "o").sentences)
    assert said
    assert "kv head" not in said
