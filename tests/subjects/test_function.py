"""A subject from a function: the forms of its result, and gradients of a bias and a sink by autograd."""

import dataclasses
import math

import pytest
import torch

import flashverify
from flashverify import Contract, Logits, Supports, parse_case
from flashverify.case.masks.predicate import visible
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, judge_case
from flashverify.checks.passes.execution import execute
from flashverify.errors import UsageError

LEARNED = Contract(gradients=frozenset({"dq", "dk", "dv", "dbias", "dsink", "drelative_bias"}))
SUPPORTS = Supports(dtypes=("fp32",), masks=("causal",), logits=("bias", "sink", "relative_bias"), dlse=True)
CASE = parse_case("fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32 bias=head sink=yes dlse=yes seed=4")


def attention(p):
    """In float64, rounded once; the gradients of everything follow by autograd."""
    group = p.q.shape[1] // p.k.shape[1]
    q, k, v = (x.double() for x in (p.q, p.k.repeat_interleave(group, 1), p.v.repeat_interleave(group, 1)))
    logits = q @ k.mT * p.scale
    if p.bias is not None:
        logits = logits + p.bias.double()
    if p.relative_bias is not None:
        reach = len(p.distance_buckets) // 2
        distance = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
        logits = logits + p.relative_bias.double()[:, p.distance_buckets[distance.clamp(-reach, reach) + reach]]
    see = visible(p.case, p.q.device)
    if see is not None:
        logits = logits.masked_fill(~see(slice(0, p.q.shape[2]), slice(0, p.k.shape[2])), -math.inf)
    if p.sink is not None:
        sink = p.sink.double().view(1, -1, 1, 1).expand(*logits.shape[:3], 1)
        logits = torch.cat([logits, sink], -1)
        v = torch.cat([v, v.new_zeros(*v.shape[:2], 1, v.shape[3])], 2)
    o = logits.softmax(-1) @ v
    return o.to(p.q.dtype), logits.logsumexp(-1).float()


def made(function=attention, contract=LEARNED):
    return flashverify.subject(name="mine", supports=SUPPORTS, contract=contract, device="cpu")(function)


def failures(subject, case=CASE):
    return {(v.check, v.error, v.output) for v in judge_case(subject, case, Plan.run()).failures}


@pytest.mark.slow
@pytest.mark.parametrize("case", [CASE, dataclasses.replace(CASE, logits=dataclasses.replace(CASE.logits, sink=False))])
def test_gradients_of_a_bias_and_a_sink_come_from_autograd(case):
    problem, _ = materialize(case, "cpu")
    found = execute(made(), problem).outputs
    assert {"dbias"} <= found.keys()
    assert ("dsink" in found) == (problem.sink is not None)
    assert found["dbias"].shape == problem.bias.shape
    assert failures(made(), case) == set()


@pytest.mark.slow
def test_the_gradient_of_a_relative_bias_comes_from_autograd():
    case = dataclasses.replace(CASE, logits=Logits(relative_bias=(8, 20, True)))
    problem, _ = materialize(case, "cpu")
    assert execute(made(), problem).outputs["drelative_bias"].shape == (4, 8)
    assert failures(made(), case) == set()

    def twice(p):
        table = p.relative_bias + (p.relative_bias - p.relative_bias.detach())
        return attention(dataclasses.replace(p, relative_bias=table))

    assert {output for _, _, output in failures(made(twice), case)} == {"drelative_bias"}


def test_a_wrong_gradient_of_the_bias_is_found():
    def twice(p):
        bias = p.bias + (p.bias - p.bias.detach())  # the same value, twice the gradient
        return attention(dataclasses.replace(p, bias=bias))

    assert {output for _, _, output in failures(made(twice))} == {"dbias"}


def test_a_promised_gradient_that_o_does_not_depend_on_is_missing():
    assert failures(made(lambda p: attention(dataclasses.replace(p, sink=p.sink.detach())))) == {
        ("accuracy", "missing", "dsink")
    }


def test_without_the_promise_no_gradient_of_them_is_asked():
    problem, _ = materialize(CASE, "cpu")
    seen = []

    def watching(p):
        seen.append((p.bias.requires_grad, p.sink.requires_grad))
        return attention(p)

    found = execute(made(watching, Contract()), problem).outputs
    assert {"dbias", "dsink"} & found.keys() == set()
    assert seen == [(False, False)]


def test_a_gradient_is_asked_for_by_itself():
    problem, _ = materialize(CASE, "cpu")
    subject = made()
    whole = execute(subject, problem).outputs
    found = subject.backward_of(problem, subject.forward(problem), frozenset({"dsink"}))
    assert found.keys() == {"dsink"}
    assert torch.allclose(found["dsink"], whole["dsink"])


@pytest.mark.slow
def test_a_mapping_is_a_result():
    subject = made(lambda p: dict(zip(("o", "lse"), attention(p), strict=True)))
    assert failures(subject) == set()


def test_a_mapping_with_other_names_is_refused():
    problem, _ = materialize(CASE, "cpu")
    with pytest.raises(UsageError, match=r"'mine' returned a mapping of 'out', 'lse'; accepted: 'o' and 'lse'"):
        made(lambda p: dict(zip(("out", "lse"), attention(p), strict=True))).forward(problem)
