"""Cases whose V lies in the buffer of K, under every check: a right subject is left alone, wrong ones are found."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.case.supports import Supports
from flashverify.checks import Plan, judge_case
from flashverify.checks.counting import check_counting
from flashverify.checks.passes.execution import execute
from tests.checks.naive import SUPPORTS, attention, make

LATENT = dataclasses.replace(SUPPORTS, kv=("shared",), heads_kv=(1,), backward=False)
TEXTS = (
    "fv1 batch=2 heads_q=3 seq_q=4 seq_k=9 dim_qk=24 dtype=fp32 klen=9,5 padding=nan gap=3 kv=shared backward=no",
    "fv1 heads_q=2 seq_q=7 seq_k=7 dim_qk=16 dim_v=8 dtype=fp32 causal=top-left seed=2 kv=shared backward=no",
)


def of_buffer(p, first=0, width=None):
    """Attention over `p.k` alone; V begins at channel `first`, and `width` channels of K enter the logits."""
    k = p.k if width is None else p.k * (torch.arange(p.k.shape[3]) < width)
    moved = dataclasses.replace(p, case=dataclasses.replace(p.case, storage=parse_case("fv1").storage))
    return attention(dataclasses.replace(moved, k=k, v=p.k[..., first : first + p.case.dim_v]))


def subject(**wrong):
    return make(lambda p: of_buffer(p, **wrong), supports=LATENT)


@pytest.mark.parametrize("text", TEXTS)
def test_a_subject_that_reads_the_buffer_alone_is_right(text):
    assert not judge_case(subject(), parse_case(text), Plan.run()).failures


@pytest.mark.parametrize("wrong", [{"first": 8}, {"width": 8}], ids=["v at another channel", "channels missing"])
def test_a_wrong_part_of_the_buffer_is_found(wrong):
    found = judge_case(subject(**wrong), parse_case(TEXTS[1]), Plan.only("accuracy", parse_case(TEXTS[1]))).failures

    assert {v.output for v in found} >= {"o"}


def test_a_store_into_v_is_damage_of_the_buffer():
    def writes(p):
        result = of_buffer(p)
        p.v[0, 0, 0, 0] = 1.0
        return result

    found = judge_case(make(writes, supports=LATENT), parse_case(TEXTS[0]), Plan.run()).failures

    assert any(v.check == "memory" and "k[0, 0, 0, 0]" in v.message for v in found)


def test_keys_are_counted_by_their_values_in_the_buffer():
    def leaks(p):
        case = dataclasses.replace(p.case, mask=dataclasses.replace(p.case.mask, causal=None))
        return of_buffer(dataclasses.replace(p, case=case))

    case = parse_case(TEXTS[1])
    verdicts = {
        name: list(check_counting(one, execute(one, materialize(case)[0])))
        for name, one in {"right": subject(), "wrong": make(leaks, supports=LATENT)}.items()
    }

    assert not verdicts["right"]
    assert {(v.output, v.error) for v in verdicts["wrong"]} >= {("o", "leaked")}


def test_both_kinds_may_be_declared():
    both = Supports(kv=("separate", "shared"), backward=False)

    assert both.refusal(parse_case("fv1 kv=shared backward=no")) is None
    assert both.refusal(parse_case("fv1 backward=no")) is None
