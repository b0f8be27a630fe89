"""A subject of a forward and a backward written by hand."""

import pytest
import torch

from flashverify import Contract, Forward, Gradients, Supports, UsageError, judge_case, parse_case, subject

SUPPORTS = Supports(dtypes=("fp32",), gqa=False)
CASE = parse_case("fv1 batch=2 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32 seed=4")


def forward(p):
    s = p.q.double() @ p.k.double().mT * p.scale
    lse = torch.logsumexp(s, -1)
    weights = torch.exp(s - lse.unsqueeze(-1))
    return Forward((weights @ p.v.double()).float(), lse.float(), saved=weights)


def backward(p, found, factor=1.0):
    do, v, weights = p.do.double(), p.v.double(), found.saved
    ds = weights * (do @ v.mT - (do * found.o.double()).sum(-1, keepdim=True)) * p.scale
    return (ds @ p.k.double()).float() * factor, (ds.mT @ p.q.double()).float(), (weights.mT @ do).float()


RETURNED = {
    "values": backward,
    "gradients": lambda p, f: Gradients(*backward(p, f)),
    "mapping": lambda p, f: p.gradients(*backward(p, f)),
}


def made(function, contract=None):
    contract = contract or Contract(reads_outputs=True)
    return subject(name="mine", supports=SUPPORTS, contract=contract, device="cpu", backward=function)(forward)


@pytest.mark.parametrize("form", RETURNED)
def test_a_right_backward_passes(form):
    result = judge_case(made(RETURNED[form]), CASE)

    assert {"dq", "dk", "dv"} <= {stats.output for stats in result.stats}
    assert not result.failures


def test_a_wrong_gradient_is_found():
    found = judge_case(made(lambda p, f: backward(p, f, factor=1.001)), CASE, checks=("accuracy",)).failures

    assert {v.output for v in found} == {"dq"}


def test_it_is_not_asked_for_single_gradients():
    assert not hasattr(made(backward), "backward_of")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((1, 2), "'mine' returned 2 values; accepted: Gradients, .dq, dk, dv., or a mapping"),
        ({"dq": 1}, "'mine' returned a mapping of 'dq'; accepted"),
        (None, "'mine' returned a NoneType; accepted"),
    ],
)
def test_what_is_no_gradients_is_refused(returned, message):
    result = judge_case(made(lambda p, f: returned), CASE, checks=("accuracy",))
    with pytest.raises(UsageError, match=message):
        made(lambda p, f: returned).backward(None, None)

    assert {v.check for v in result.failures} == {"exception"}


def test_a_forward_that_returns_three_values_is_refused():
    with pytest.raises(UsageError, match=r"'mine' returned 3 values; accepted: o, .o, lse. or a Forward"):
        made(backward).returned((1, 2, 3))
