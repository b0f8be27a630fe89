"""Huge biases, slopes and sinks: a subject that promises what becomes of them is held to it, another one is not."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.judge.verdict import Status
from flashverify.subjects import Contract, Supports
from flashverify.subjects.interface import Forward

LARGEST = torch.finfo(torch.float32).max
STEEPEST = 2.0**96
PLAN = Plan(checks=("accuracy", "nonfinite"))
PROMISE = Contract(modifiers_saturate=True, gradients=frozenset())

SINK = "fv1 heads_q=2 seq_q=3 seq_k=5 dtype=fp32 sink=yes backward=no edits=sink:0,0,0,0:0x1.ep127"
NO_SINK = "fv1 seq_q=3 seq_k=5 dtype=fp32 sink=yes backward=no edits=sink:0,0,0,0:-0x1.ep127"
SLOPE = "fv1 seq_q=3 seq_k=3 dtype=fp32 alibi=yes backward=no edits=slopes:0,0,0,0:0x1.ep127"
STEEP = "fv1 seq_q=3 seq_k=3 dtype=fp32 alibi=yes backward=no edits=slopes:0,0,0,0:-0x1p100"
HIGH = "fv1 seq_q=2 seq_k=3 dtype=fp32 bias=full backward=no edits=bias:0,0,0,1:0x1.ep127"
LOW = (
    "fv1 seq_k=2 dtype=fp32 scale=1 bias=full backward=no edits=q:0,0,0,0:0x1p61;k:0,0,1,0:0x1p61;k:0,0,0,0:0;"
    "bias:0,0,0,0:-0x1.ep127;bias:0,0,0,1:-0x1.ep127"
)
NOTHING_ELSE = "fv1 seq_k=2 dtype=fp32 bias=full backward=no edits=bias:0,0,0,0:-0x1.ep127;bias:0,0,0,1:-0x1.ep127"
CASES = (SINK, NO_SINK, SLOPE, STEEP, HIGH, LOW, NOTHING_ELSE)


def clamped(x, limit=LARGEST):
    return x.clamp(-limit, limit)


class Saturating:
    """Attention in fp32 and base 2 with every modifier clamped, but for those named in `without`."""

    name = "saturating"
    supports = Supports(dtypes=("fp32",), logits=("alibi", "bias", "sink"), huge_modifiers=True, backward=False)

    def __init__(self, *without, contract=PROMISE, change=lambda o, lse: (o, lse)):
        self.without, self.contract, self.change = without, contract, change

    def form(self, case):
        from flashverify.numerics import Form

        return Form(architecture="ieee")

    def device(self):
        return "cpu"

    def evidence(self):
        return "cpu"

    def clamp(self, name, x, limit=LARGEST):
        return x if name in self.without else clamped(x, limit)

    def forward(self, p):
        log2e = math.log2(math.e)
        z = p.q @ p.k.repeat_interleave(p.case.heads_q // p.case.heads_kv, 1).mT * (p.scale * log2e)
        if p.bias is not None:
            z = z + self.clamp("bias", p.bias * log2e)
        if p.slopes is not None:
            distance = (torch.arange(p.case.seq_q).view(-1, 1) - torch.arange(p.case.seq_k)).abs()
            z = z - self.clamp("slope", p.slopes * log2e, STEEPEST).view(-1, 1, 1) * distance
        z = self.clamp("logit", z)
        if p.sink is not None:
            sink = self.clamp("sink", p.sink * log2e).view(1, -1, 1, 1).expand(*z.shape[:3], 1)
            z = torch.cat([z, sink], -1)
        m = z.amax(-1, keepdim=True)
        w = torch.exp2(z - m)
        total = w.sum(-1, keepdim=True)
        v = p.v.repeat_interleave(p.case.heads_q // p.case.heads_kv, 1)
        o, lse = (w / total)[..., : p.case.seq_k] @ v, ((m + total.log2()) * math.log(2)).squeeze(-1)
        return Forward(*self.change(o, lse))

    def backward(self, problem, forward):
        raise NotImplementedError


def found(subject, text):
    return {(v.check, v.error, v.output) for v in judge_case(subject, parse_case(text), PLAN).failures}


@pytest.mark.parametrize("text", CASES)
def test_a_subject_that_keeps_the_promise_passes_and_is_judged(text):
    result = judge_case(Saturating(), parse_case(text), PLAN)

    assert {(v.check, v.status) for v in result.verdicts} == {("accuracy", Status.PASS), ("nonfinite", Status.PASS)}


@pytest.mark.parametrize(
    ("without", "text", "failures"),
    [
        ("sink", SINK, {("nonfinite", "saturation", "o"), ("nonfinite", "saturation", "lse")}),
        ("slope", SLOPE, {("nonfinite", "nan", "o"), ("nonfinite", "nan", "lse")}),
        ("slope", STEEP, {("accuracy", "bound", "lse")}),
        ("bias", LOW, {("accuracy", "bound", "o")}),
        ("logit", NOTHING_ELSE, set()),
    ],
)
def test_a_clamp_that_is_missing_is_found(without, text, failures):
    assert found(Saturating(without), text) == failures


def test_clamps_that_are_missing_together_are_found():
    both = {("nonfinite", "saturation", "o"), ("nonfinite", "saturation", "lse")}

    assert found(Saturating("bias", "logit"), HIGH) == both
    assert found(Saturating("bias", "logit"), NOTHING_ELSE) == both


def test_a_value_beside_a_logit_that_stands_alone_is_found():
    def halves(o, lse):
        return o / 2, lse

    def leaks(o, lse):
        return o + 2.0**-20, lse

    assert found(Saturating(change=halves), LOW) == {("accuracy", "bound", "o")}
    assert found(Saturating(change=leaks), SINK) == {("accuracy", "bound", "o")}


def test_an_infinite_logarithm_is_found_where_nothing_is_nan():
    def infinite(o, lse):
        return o, torch.where(lse.abs() > 1e37, lse * math.inf, lse)

    assert found(Saturating(change=infinite), SINK) == {("nonfinite", "saturation", "lse")}


def test_a_subject_without_the_promise_is_not_asked():
    subject = Saturating("sink", contract=Contract(gradients=frozenset()))
    case = parse_case(SINK.replace("heads_q=2 ", ""))
    verdicts = judge_case(subject, case, PLAN).verdicts

    assert {v.status for v in verdicts} == {Status.EXEMPT}


def test_a_dot_that_overflows_by_itself_excuses_its_row():
    text = "fv1 seq_k=2 dtype=fp32 scale=1 sink=yes backward=no edits=q:0,0,0,0:0x1p70;k:0,0,0,0:0x1p70;sink:0,0,0,0:0x1p127"

    assert found(Saturating("sink", "logit"), text) == set()


def test_huge_modifiers_are_refused_where_nothing_is_said_about_them():
    plain = dataclasses.replace(Saturating.supports, huge_modifiers=False)
    mask = "fv1 seq_k=2 dtype=fp32 bias=full backward=no edits=bias:0,0,0,0:-0x1.ep127"

    for text in (SINK, NO_SINK, SLOPE, STEEP, HIGH):
        assert "a slope, sink or positive bias of 3.96e+28 or more" in plain.refusal(parse_case(text))
    assert "a slope" in plain.refusal(parse_case("fv1 dtype=fp32 alibi=yes edits=slopes:0,0,0,0:-0x1.cp95"))
    assert plain.refusal(parse_case(mask)) is None
    tame = dataclasses.replace(plain, wild_slopes=False)
    assert tame.refusal(parse_case("fv1 dtype=fp32 alibi=yes backward=no edits=slopes:0,0,0,0:1")) == "edits of slopes"
