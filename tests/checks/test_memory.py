"""The check `memory` on packed sequences: rows behind the last one are nobody's."""

import dataclasses
from itertools import pairwise

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.subjects import Contract, Forward
from tests.checks.naive import SUPPORTS, attention, make

SUPPORTED = dataclasses.replace(SUPPORTS, masks=("packed",))
SLACK = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=9 seq_k=9 dtype=fp32 packed=0,3,7/0,4,7 seed=1 backward=no")
FULL = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=7 seq_k=7 dtype=fp32 packed=0,3,7/0,4,7 seed=1 backward=no")


class Packed:
    """The small attention, sequence by sequence; `slack` writes the rows behind the last sequence."""

    def __init__(self, slack, contract):
        self._slack, self._inner = slack, make(supports=SUPPORTED, contract=contract)
        self.name, self.supports, self.contract = "packed", self._inner.supports, self._inner.contract
        self.form, self.device, self.evidence = self._inner.form, self._inner.device, self._inner.evidence

    def forward(self, p):
        o, lse = torch.empty(p.case.shape_o), torch.empty(p.case.shape_o[:3])
        cu_q, cu_k = p.case.mask.packed.cu_q, p.case.mask.packed.cu_k
        for (a, b), (c, d) in zip(pairwise(cu_q), pairwise(cu_k), strict=True):
            mask = dataclasses.replace(p.case.mask, packed=None)
            case = dataclasses.replace(p.case, seq_q=b - a, seq_k=d - c, mask=mask)
            part = dataclasses.replace(p, case=case, q=p.q[:, :, a:b], k=p.k[:, :, c:d], v=p.v[:, :, c:d])
            o[:, :, a:b], lse[:, :, a:b] = attention(part)
        if self._slack:
            o[:, :, cu_q[-1] :] = 0.0
        return Forward(o, lse)


def failures(subject, case):
    return [
        (v.check, v.error, v.output, v.index) for v in judge_case(subject, case, Plan.only("memory", case)).failures
    ]


def test_rows_behind_the_last_sequence_must_stay_unwritten():
    assert failures(Packed(True, Contract()), SLACK) == [("memory", "touched", "o", (0, 0, 7, 0))]


@pytest.mark.parametrize(
    ("slack", "contract", "case"),
    [(False, Contract(), SLACK), (True, Contract(padding="undefined"), SLACK), (True, Contract(), FULL)],
    ids=["left alone", "left open by the contract", "no such rows"],
)
def test_rows_that_may_be_written_or_are_not_are_no_failure(slack, contract, case):
    assert failures(Packed(slack, contract), case) == []
