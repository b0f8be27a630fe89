"""The strict comparisons of the accuracy check, and what a stored row that is not finite excuses."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import check_accuracy
from flashverify.checks.passes.execution import execute
from flashverify.judge.verdict import from_hex
from flashverify.numerics import Form
from flashverify.subjects import Contract, Supports
from flashverify.subjects.interface import Forward, Gradients
from flashverify.truth import Truth, inputs_of

PLAIN = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=20 seq_k=48 dim_qk=16 dim_v=16 dtype=bf16 seed=3")
LEARNED = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32 bias=full sink=yes seed=4")


class Tiles:
    """Attention in fp32, tiles of 16 keys in ascending order; `narrow` rounds its accumulator to the input dtype after each."""

    name = "tiles"
    supports = Supports(logits=("bias", "sink"))
    contract = Contract(lse_base="e")

    def __init__(self, *, narrow=False, order="ascending", break_row=None, break_gradients=()):
        self.narrow, self.order, self.break_row, self.break_gradients = narrow, order, break_row, break_gradients

    def form(self, case):
        return Form(key_order=self.order, block_n=16, architecture="ieee")

    def device(self):
        return "cpu"

    def evidence(self):
        return "cpu"

    def logits(self, p):
        s = p.q.float() @ p.k.float().mT * p.scale
        return s if p.bias is None else s + p.bias.float()

    def forward(self, p):
        s = self.logits(p)
        m, total, acc = torch.full_like(s[..., :1], -math.inf), 0.0, 0.0
        for start in range(0, p.case.seq_k, 16):
            part = slice(start, start + 16)
            new = torch.maximum(m, s[..., part].amax(-1, keepdim=True))
            alpha, w = torch.exp(m - new), torch.exp(s[..., part] - new)
            total = total * alpha + w.sum(-1, keepdim=True)
            acc = acc * alpha + w.to(p.q.dtype).float() @ p.v[..., part, :].float()
            acc, m = acc.to(p.q.dtype).float() if self.narrow else acc, new
        if p.sink is not None:
            sink = p.sink.view(1, -1, 1, 1)
            new = torch.maximum(m, sink)
            alpha = torch.exp(m - new)
            total, acc, m = total * alpha + torch.exp(sink - new), acc * alpha, new
        o, lse = (acc / total).to(p.q.dtype), (m + total.log()).squeeze(-1)
        if self.break_row is not None:
            o[self.break_row] = math.nan
        return Forward(o, lse)

    def backward(self, p, forward):
        P = torch.exp(self.logits(p) - forward.lse.unsqueeze(-1))
        do = p.do.float()
        delta = (do * forward.o.float().nan_to_num(0.0)).sum(-1, keepdim=True)
        ds = P * (do @ p.v.float().mT - delta)
        dbias = dsink = None
        if p.bias is not None:
            shared = [axis for axis in (0, 1) if p.bias.shape[axis] == 1]
            dbias = ds.sum(shared, keepdim=True) if shared else ds.clone()
        if p.sink is not None:
            dsink = -(torch.exp(p.sink.view(1, -1, 1) - forward.lse) * delta.squeeze(-1)).sum((0, 2))
        for name, place in self.break_gradients:
            {"dbias": dbias, "dsink": dsink}[name][place] += 7.0
        ds = ds.to(p.q.dtype).float()
        dq, dk = ds @ p.k.float() * p.scale, ds.mT @ p.q.float() * p.scale
        dv = P.to(p.q.dtype).float().mT @ do
        given = {"dbias": None if dbias is None else dbias.to(p.q.dtype), "dsink": dsink}
        return Gradients(*(x.to(p.q.dtype) for x in (dq, dk, dv)), None, **given)


def judged(subject, case=PLAIN):
    problem, _ = materialize(case, "cpu")
    found = check_accuracy(subject, execute(subject, problem)).comparisons
    return {(c.stats.output, c.stats.mode): c for c in found}


def test_a_correct_kernel_passes_and_comes_close():
    found = judged(Tiles())

    assert [c.verdicts for c in found.values()] == [()] * len(found)
    assert 0.5 < from_hex(found["o", "strict"].stats.worst) <= 1
    assert 0.5 < from_hex(found["dv", "strict"].stats.worst) <= 1


def test_a_narrow_accumulator_fails_in_the_strict_mode_alone():
    found = judged(Tiles(narrow=True))

    assert {key for key, c in found.items() if c.verdicts} == {("o", "strict")}
    (verdict,) = found["o", "strict"].verdicts
    truth = Truth(inputs_of(materialize(PLAIN, "cpu")[0])[0], "bf16", Tiles().form(PLAIN))
    predicted, exact = truth.strict()["o"][0][verdict.index], truth.exact("o")[verdict.index]
    words = f"a correct kernel of this form returns {float(predicted):.9g} (the exact value is {float(exact):.9g})"
    assert predicted != exact
    assert words in verdict.message


@pytest.mark.parametrize(
    ("subject", "case"),
    [(Tiles(order="unknown"), PLAIN), (Tiles(), dataclasses.replace(PLAIN, dtype="fp32"))],
    ids=["no order", "fp32"],
)
def test_without_an_order_or_16_bits_there_is_no_strict_mode(subject, case):
    assert not {mode for _, mode in judged(subject, case)} & {"strict"}


BROKEN = (0, 1, 2)
"""Batch, head and row of an O that is not finite."""


def conditional(**breaks):
    found = judged(Tiles(break_row=BROKEN, **breaks), LEARNED)
    return {name: c for (name, mode), c in found.items() if mode == "conditional"}


def test_what_a_broken_row_may_have_reached_is_excused():
    found = conditional(break_gradients=(("dbias", BROKEN), ("dsink", 1)))

    assert not found["dbias"].verdicts
    assert not found["dsink"].verdicts
    assert found["dbias"].stats.exempt == LEARNED.seq_k
    assert found["dsink"].stats.exempt == 1


@pytest.mark.parametrize(
    ("output", "place"),
    [("dbias", (1, 1, 2)), ("dbias", (0, 0, 2)), ("dbias", (0, 1, 3)), ("dsink", 0)],
)
def test_what_it_cannot_have_reached_is_judged(output, place):
    assert conditional(break_gradients=((output, place),))[output].verdicts
