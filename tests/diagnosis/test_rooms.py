"""Keys beyond the number of rows, the room of pages, and delta of rows that are not known to be empty: what each semantics expects."""

import dataclasses

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.observe import look
from tests.diagnosis.explaining import explained
from tests.diagnosis.packed_and_paged import paged
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.test_diagnosis import CASE, FORWARD

PAGED = "fv1 seq_q=3 seq_k=21 dim_qk=8 dim_v=8 dtype=fp32 backward=no page_size=16 "


class EndOfTheLastPage(paged(lambda table, b, key, size: table[b, key // size])):
    """The diagonal ends there, not at the last key."""

    def shift(self, problem, queries, keys):
        return -(-keys // 16) * 16 - queries


class InfiniteLse(Plain):
    """Rows that see no key have an LSE of +inf, and a delta as if they were others."""

    def forward(self, problem):
        found = super().forward(problem)
        self.empty = found.lse == -torch.inf
        return dataclasses.replace(found, lse=found.lse.masked_fill(self.empty, torch.inf))

    def backward(self, problem, forward):
        right = super().backward(
            problem, dataclasses.replace(forward, lse=forward.lse.masked_fill(self.empty, -torch.inf))
        )
        return dataclasses.replace(right, delta=torch.where(self.empty, -problem.dlse, right.delta))


DEFECTS = (
    (
        "keys-limited-to-rows",
        FORWARD,
        lambda: planted(drop_keys=lambda s, see: see & (torch.arange(see.shape[3]) < see.shape[2])),
    ),
    ("diagonal-of-the-buffers", PAGED + "causal=bottom-right", EndOfTheLastPage),
    ("diagonal-of-the-buffers", PAGED + "causal=bottom-right window=2,*", EndOfTheLastPage),
    (
        "empty-lse-plus-infinity",
        CASE.replace("seq_q=5 seq_k=7", "seq_q=7 seq_k=5") + "causal=bottom-right dlse=yes",
        InfiniteLse,
    ),
)


@pytest.mark.parametrize(("name", "text", "subject"), DEFECTS)
def test_a_planted_defect_is_what_its_semantics_expects(name, text, subject):
    scene = look(subject(), parse_case(text))

    assert scene.failing(), "the planted defect does not show"
    assert explained(name, scene)


def test_as_many_keys_as_queries_are_wrong_where_there_are_fewer_keys_and_move_a_diagonal_at_the_end():
    claim = Claim(next(each for each in SEMANTICS if each.name == "keys-as-many-as-queries"))
    fewer = look(planted(shift=lambda *_: 0), parse_case(FORWARD.replace("seq_q=5", "seq_q=9")))
    moved = look(planted(shift=lambda *_: 0), parse_case(FORWARD + "causal=bottom-right"))

    assert claim.answer(moved) is Answer.CLEAR
    assert claim.answer(fewer) is Answer.RIGHT
