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
    assert not result.warnings


def test_a_delta_that_no_reading_explains_makes_a_warning():
    result = judged(lambda o: o * (1 + 2.0**-7), None)

    assert {verdict.status for verdict in result.verdicts} == {Status.PASS}
    assert any("wrong given the returned O and LSE" in warning for warning in result.warnings)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("regime", ["integers", "normal", "v-positive"])
def test_autograd_of_the_definition_needs_no_declaration(dtype, regime):
    """Its delta is the sum of P dP with the P of the forward: given O and LSE alone it is far outside."""
    case = parse_case(f"fv1 seq_q=9 seq_k=20 dim_qk=16 dim_v=16 dtype={dtype} regime={regime} causal=top-left")
    found = {}
    for reads_outputs in (None, True):

        @subject(supports=Supports(gqa=False, masks=("causal",)), contract=Contract(reads_outputs=reads_outputs))
        def kernel(p):
            s = ((p.q.float() @ p.k.float().mT) * p.scale).masked_fill(~p.dense_mask(), -torch.inf)
            return (s.softmax(-1) @ p.v.float()).to(p.q.dtype), s.logsumexp(-1)

        found[reads_outputs] = judge_case(kernel, case, Plan(checks=("accuracy", "relations")))
    assert not found[None].failures
    assert not found[None].warnings
    assert bool(found[True].failures) == (dtype != "fp32")


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
