"""Cases with keys chosen by index, under every check: a right subject is left alone, wrong readings of the lists are found."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.case.selections import Selections
from flashverify.checks import Plan, judge_case
from tests.checks.naive import SUPPORTS, make

SELECTED = dataclasses.replace(
    SUPPORTS,
    masks=("causal", "selection"),
    required_masks=("selection",),
    selections=Selections(rows=(1, 2), keys=(1, 3)),
)
TEXTS = (
    "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=8 dim_qk=8 dim_v=8 dtype=fp32 causal=bottom-right selected=5,2,3,200,1,1,1",
    "fv1 heads_q=2 seq_q=4 seq_k=6 dim_qk=8 dim_v=8 dtype=fp32 selected=7,1,1,160,2 seed=1",
)


def attention(p, *, lists=lambda x: x, twice=False, causal=True):
    """(O, LSE) by the number of times that the lists name each key."""
    case, selection = p.case, p.case.mask.selection
    blocks = -(-case.seq_k // selection.keys)
    found = lists(p.selection).long()
    index = found.masked_fill(found < 0, blocks)
    times = torch.zeros((*index.shape[:3], blocks + 1)).scatter_add_(3, index, torch.ones(index.shape))[..., :blocks]
    times = times.repeat_interleave(selection.rows, 2)[:, :, : case.seq_q]
    times = times.repeat_interleave(selection.keys, 3)[..., : case.seq_k]
    group = case.heads_q // case.heads_kv
    times = times.repeat_interleave(group, 1) if times.shape[1] > 1 else times
    if p.causal is not None and causal:
        shift = case.seq_k - case.seq_q if p.causal == "bottom-right" else 0
        times = times * (torch.arange(case.seq_k) <= torch.arange(case.seq_q).view(-1, 1) + shift)
    k, v = (x.repeat_interleave(group, 1) for x in (p.k, p.v))
    s = (p.q @ k.mT) * p.scale
    see = (times > 0).expand(s.shape)
    s = torch.where(see, s + (times.clamp(min=1).log() if twice else 0.0), -math.inf)
    some = see.any(-1, keepdim=True)
    m = torch.where(some, s.amax(-1, keepdim=True), 0.0)
    w = torch.exp(s - m)
    total = torch.where(some, w.sum(-1, keepdim=True), 1.0)
    return (w / total) @ v, torch.where(some, m + total.log(), -math.inf).squeeze(-1)


def subject(**wrong):
    return make(lambda p: attention(p, **wrong), supports=SELECTED)


@pytest.mark.parametrize("text", TEXTS)
def test_a_subject_that_takes_the_lists_as_sets_is_right(text):
    assert not judge_case(subject(), parse_case(text), Plan.run()).failures


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"lists": lambda x: x.clamp(min=0)}, TEXTS[1]),
        ({"lists": lambda x: x.masked_fill(x < 0, 5)}, TEXTS[1]),
        ({"twice": True}, TEXTS[1]),
        ({"lists": lambda x: x.roll(1, 2)}, TEXTS[1]),
        ({"lists": lambda x: x[:, :1]}, TEXTS[0]),
        ({"lists": lambda x: x[..., :-1]}, TEXTS[0]),
        ({"causal": False}, TEXTS[0]),
    ],
    ids=["-1 as 0", "-1 as the last", "twice", "another row", "another head", "one entry less", "not causal"],
)
def test_a_wrong_reading_of_the_lists_is_found(wrong, text):
    case = parse_case(text)

    found = judge_case(subject(**wrong), case, Plan.only("accuracy", case)).failures

    assert {"o", "lse", "dq"} <= {v.output for v in found}
