"""A backward that keeps O unrounded is right to a diagnosis too, unless it says that it reads the returned O."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.expected import of_bound
from flashverify.diagnosis.observe import look
from flashverify.judge.verdict import Status
from flashverify.subjects import Contract, Supports, subject

CASE = parse_case("fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 dtype=bf16 regime=integers")


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale):
        s = (q.double() @ k.double().mT) * scale
        lse = s.logsumexp(-1)
        o = (s - lse[..., None]).exp() @ v.double()
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.scale = scale
        return o.to(q.dtype), lse.float()

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse = (x.double() for x in ctx.saved_tensors)
        g = do.double()
        p = ((q @ k.mT) * ctx.scale - lse[..., None]).exp()
        ds = p * (g @ v.mT - (g * o).sum(-1, keepdim=True))
        grads = ds @ k * ctx.scale, ds.mT @ q * ctx.scale, p.mT @ g
        return *(x.to(do.dtype) for x in grads), None


def of(reads_outputs, moved=0.0):
    """A subject whose dK is `moved` off."""

    @subject(supports=Supports(gqa=False), contract=Contract(reads_outputs=reads_outputs), device="cpu")
    def kernel(p):
        o, lse = Attention.apply(p.q, p.k + moved * (p.k - p.k.detach()), p.v, p.scale)
        return o, lse

    return kernel


@pytest.mark.parametrize(("reads_outputs", "wrong"), [(None, set()), (False, set()), (True, {"dq", "dk"})])
def test_what_is_right_end_to_end_is_so_to_a_diagnosis_where_the_check_has_it(reads_outputs, wrong):
    kernel = of(reads_outputs)

    statuses = {verdict.status for verdict in judge_case(kernel, CASE, Plan.only("accuracy", CASE)).verdicts}

    assert (statuses == {Status.PASS}) == (not wrong)
    assert set(look(kernel, CASE).failures) == wrong


def test_what_is_wrong_either_way_is_so_to_a_diagnosis():
    assert set(look(of(None, moved=0.5), CASE).failures) == {"dk"}


def test_gradients_that_are_asked_end_to_end_have_the_widest_bound_of_all_readings():
    scene = look(of(False), CASE)
    first, widest = (of_bound(*pairs["dq"]).total for pairs in (scene.truth.backward(), scene.truth.widest()))

    assert scene.right["dq"].total.equal(widest)
    assert bool((widest > first).any())
