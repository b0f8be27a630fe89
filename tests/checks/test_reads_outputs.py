"""A backward that keeps O unrounded is right, and a backward that says that it reads the returned O is held to it."""

import pytest
import torch

from flashverify.case import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.judge.verdict import Status
from flashverify.subjects import Contract, Supports, subject

CASE = parse_case("fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 dtype=bf16 regime=integers")


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, stored):
        s = (q.float() @ k.float().mT) * scale
        lse = s.logsumexp(-1)
        o = (s - lse[..., None]).exp() @ v.float()
        ctx.save_for_backward(q, k, v, stored(o), lse)
        ctx.scale = scale
        return o.to(q.dtype), lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse = ctx.saved_tensors
        p = ((q.float() @ k.float().mT) * ctx.scale - lse[..., None]).exp()
        delta = (do.float() * o).sum(-1, keepdim=True)
        ds = p * (do.float() @ v.float().mT - delta)
        dq, dk = ds @ k.float() * ctx.scale, ds.mT @ q.float() * ctx.scale
        return dq.to(q.dtype), dk.to(q.dtype), (p.mT @ do.float()).to(q.dtype), None, None


def judged(stored, reads_outputs):
    @subject(supports=Supports(gqa=False, dlse=False), contract=Contract(reads_outputs=reads_outputs))
    def kernel(p):
        return Attention.apply(p.q, p.k, p.v, p.scale, stored)

    return judge_case(kernel, CASE, Plan.only("accuracy", CASE))


def rounded(o):
    return o.to(torch.bfloat16).float()


def unrounded(o):
    return o


@pytest.mark.parametrize("reads_outputs", [None, False])
def test_a_backward_that_keeps_o_unrounded_passes(reads_outputs):
    result = judged(unrounded, reads_outputs)

    assert {verdict.status for verdict in result.verdicts} == {Status.PASS}
    assert any("reads_outputs=True" in warning for warning in result.warnings) == (reads_outputs is None)
    assert "conditional" not in {stats.mode for stats in result.stats}


def test_a_backward_that_promises_to_read_the_returned_o_and_does_not_fails():
    result = judged(unrounded, True)

    assert {(v.output, v.mode) for v in result.failures} == {("dq", "conditional"), ("dk", "conditional")}


@pytest.mark.parametrize("reads_outputs", [None, True])
def test_a_backward_that_reads_the_returned_o_is_judged_given_it(reads_outputs):
    result = judged(rounded, reads_outputs)

    assert {verdict.status for verdict in result.verdicts} == {Status.PASS}
    assert "conditional" in {stats.mode for stats in result.stats}


@pytest.mark.parametrize("reads_outputs", [None, False, True])
def test_a_gradient_that_is_wrong_end_to_end_fails_whatever_is_promised(reads_outputs):
    result = judged(lambda o: 0 * o, reads_outputs)

    assert {"dq", "dk"} <= {verdict.output for verdict in result.failures}
