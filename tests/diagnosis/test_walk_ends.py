"""Walks whose limit is that of another row or key of the tile."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.observe import look
from tests.diagnosis.planted import planted
from tests.diagnosis.stepwise import assign, stepwise

CASE = "fv1 seq_q=90 seq_k=100 dim_qk=8 dim_v=8 dtype=fp32 "
LEFT = 20


def of_keys(kept):
    """dK and dV lack the pairs that `kept` (row, key) leaves out."""

    def pairs(s, x):
        rows, keys = x.shape[-2:]
        return torch.where(kept(torch.arange(rows)[:, None], torch.arange(keys)), x, 0.0)

    return stepwise(
        at_heads=assign(
            dk=lambda s: s.scale * (pairs(s, s.inner).mT @ s.q), dv=lambda s: pairs(s, s.weights * s.keep).mT @ s.do
        )
    )


def of_rows(kept):
    """The forward lacks them."""
    return planted(drop_keys=lambda s, x: x & kept(torch.arange(x.shape[-2])[:, None], torch.arange(x.shape[-1])))


def ends_with_the_first_key(row, key):
    return row // 16 * 16 < key // 32 * 32 + LEFT + 1


def ends_with_the_first_row(row, key):
    return key // 16 * 16 < row // 32 * 32 + 1


def begins_with_the_last_key(row, key):
    return row >= (key // 32 * 32 + 31).clamp(max=99) // 16 * 16


def ends_with_the_number_of_the_row(row, key):
    return key // 16 * 16 < row // 32 * 32 + 32


def answer(name, subject, text):
    scene = look(subject, parse_case(CASE + text))
    assert scene.failing(), "the planted defect does not show"
    return Claim(next(each for each in SEMANTICS if each.name == name)).answer(scene)


@pytest.mark.parametrize(
    ("name", "subject", "text"),
    [
        ("walk-end-of-the-first", of_keys(ends_with_the_first_key), f"window={LEFT},*"),
        ("walk-end-of-the-first", of_rows(ends_with_the_first_row), "causal=top-left backward=no"),
        ("walk-end-of-the-first", of_rows(ends_with_the_first_row), "window=40,0 backward=no"),
        ("walk-end-without-shift", of_rows(ends_with_the_number_of_the_row), "causal=bottom-right backward=no"),
        ("walk-begin-of-the-last-key", of_keys(begins_with_the_last_key), "causal=top-left"),
        ("walk-begin-of-the-last-key", of_keys(begins_with_the_last_key), "window=*,0"),
    ],
)
def test_a_planted_defect_is_what_its_semantics_expects(name, subject, text):
    assert answer(name, subject, text) is Answer.CLEAR


@pytest.mark.parametrize(
    ("name", "subject", "text"),
    [
        # the pairs are those of a walk over the keys that begins late, which dK and dV alone do not have
        ("walk-begin-rounded-up", of_keys(ends_with_the_first_key), f"window={LEFT},*"),
        ("walk-end-of-the-first", of_keys(begins_with_the_last_key), "causal=top-left"),
        ("walk-end-without-shift", of_rows(lambda row, key: key <= row), "causal=bottom-right backward=no"),
        ("walk-end-of-the-first", of_rows(lambda row, key: key < row), "causal=top-left backward=no"),
        ("walk-begin-of-the-last-key", of_keys(lambda row, key: row > key), "causal=top-left"),
    ],
)
def test_another_defect_is_not(name, subject, text):
    assert answer(name, subject, text) is Answer.OTHERWISE


@pytest.mark.parametrize("name", ["walk-end-of-the-first", "walk-begin-of-the-last-key"])
@pytest.mark.parametrize("text", ["seq_q=5 seq_k=7", "seq_q=5 seq_k=7 window=*,*", "seq_q=0 seq_k=7 causal=top-left"])
def test_a_walk_without_a_limit_or_without_rows_has_none_to_be_wrong(name, text):
    scene = look(planted(), parse_case(f"fv1 dim_qk=8 dim_v=8 dtype=fp32 {text}"))

    assert not list(next(each for each in SEMANTICS if each.name == name).build(scene))
