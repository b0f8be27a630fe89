"""Softcap, ALiBi, bias, sinks and dropout: forward and backward against autograd in float64."""

import math

import numpy as np
import pytest
import torch

from flashverify.interpreter import session
from flashverify_kernels import Dropout, Options, attention_varlen, backward, forward
from flashverify_kernels.runtime import INTERPRETED
from tests.fast_tier import fast_one_in
from tests.kernels.terms_reference import MASKS, TERMS, check, compare, masked, problem, reference, run, slopes


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", fast_one_in(3, [torch.float32, torch.float16, torch.bfloat16], ids=str, kept=2))
@pytest.mark.parametrize("term", TERMS)
def test_every_term_agrees_with_autograd(blocks, term, dtype):
    check(term, "none", dtype, blocks(16, 32))


# Every mask meets all terms at once; each alone meets the two masks that differ most from none.
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("block", [(16, 32), (32, 16)])
def test_all_terms_together_agree_with_autograd_under_every_mask(blocks, mask, block):
    check("all", mask, torch.float32, blocks(*block))


@pytest.mark.parametrize("mask", ["bottom-right with lengths", "window"])
@pytest.mark.parametrize("term", ["softcap", "alibi", "bias", "sink", "dropout"])
def test_every_term_agrees_with_autograd_under_masks(blocks, term, mask):
    check(term, mask, torch.float16, blocks(16, 16))


@pytest.mark.parametrize("mask", ["bottom-right with lengths", "window", "bits"])
def test_the_gradient_of_a_bias_is_exactly_zero_where_no_query_sees_the_key(blocks, mask):
    got, see = check("bias", mask, torch.float32, blocks(16, 16))
    assert bool((got["dbias"][~see.expand_as(got["dbias"])] == 0).all())


def test_only_what_is_asked_for_is_computed():
    tensors, do, _ = problem(bias=(1, 1), sink=True)
    options = Options(bias=tensors["bias"], sink=tensors["sink"])
    inputs = [tensors[name] for name in "qkv"]
    o, lse2 = forward(*inputs, options)
    every = backward(do, *inputs, o, lse2, options)
    for n, name in enumerate(("dq", "dk", "dv", "dbias", "dsink")):
        needs = tuple(m == n for m in range(5))
        got = backward(do, *inputs, o, lse2, options, needs=needs)
        for other in ("dq", "dk", "dv", "dbias", "dsink"):
            assert (getattr(got, other) is None) == (other != name)
        assert torch.equal(getattr(got, name), getattr(every, name))


def test_packed_sequences_take_terms_as_if_alone(blocks):
    lengths_q, lengths_k = [5, 0, 19, 3], [9, 4, 19, 0]
    cu_q, cu_k = (torch.tensor([0, *np.cumsum(n)], dtype=torch.int32) for n in (lengths_q, lengths_k))
    tensors, do, dlse = problem(batch=1, sq=sum(lengths_q), sk=sum(lengths_k), sink=True)
    terms = {"softcap": 2.0, "alibi_slopes": slopes(2), "causal": "bottom-right", "scale": 0.3}
    rows = sum(lengths_q) + 4
    x = {name: tensors[name][0].transpose(0, 1).contiguous() for name in "qkv"}
    x["q"] = torch.cat([x["q"], torch.full((4, 2, 16), math.nan)])
    x = {name: value.requires_grad_() for name, value in {**x, "sink": tensors["sink"]}.items()}
    dropout = Dropout(0.2, 5, 8)
    o, lse = attention_varlen(
        *(x[name] for name in "qkv"), cu_q, cu_k, max_q=19, max_k=19, sink=x["sink"], dropout=dropout,
        config=blocks(16, 16), **terms,
    )  # fmt: skip
    end = torch.full((4, 2, 16), math.nan)
    torch.autograd.backward(
        [o, lse], [torch.cat([do[0].transpose(0, 1), end]), torch.cat([dlse[0], torch.full((2, 4), math.nan)], 1)]
    )
    assert o.shape[0] == rows
    dsink = torch.zeros(2, dtype=torch.float64)
    terms.pop("causal")
    for n, (a, b) in enumerate(zip(cu_q.tolist()[:-1], cu_q.tolist()[1:], strict=True)):
        c, e = cu_k[n], cu_k[n + 1]
        part = {"q": tensors["q"][:, :, a:b], "k": tensors["k"][:, :, c:e], "v": tensors["v"][:, :, c:e]}
        if not b - a:
            continue
        shift = int(e - c) - (b - a)
        i, j = torch.arange(b - a)[:, None], torch.arange(int(e - c))[None, :]
        # the words of sequence n are those of batch n
        whole = {name: torch.cat([value] * (n + 1)) for name, value in part.items()}
        wanted = reference(
            {**whole, "sink": tensors["sink"]},
            torch.cat([torch.zeros_like(do[:, :, a:b])] * n + [do[:, :, a:b]]),
            torch.cat([torch.zeros_like(dlse[:, :, a:b])] * n + [dlse[:, :, a:b]]),
            (j <= i + shift)[None, None].expand(n + 1, 1, -1, -1),
            shift=shift,
            dropout=dropout,
            **terms,
        )
        dsink += wanted.pop("dsink")
        got = {"o": o[a:b].detach(), "dq": x["q"].grad[a:b], "dk": x["k"].grad[c:e], "dv": x["v"].grad[c:e]}
        got = {name: value.transpose(0, 1) for name, value in got.items()} | {"lse": lse[:, a:b].detach()}
        compare(got, {name: wanted[name][n] for name in got}, torch.float32)
    compare({"dsink": x["sink"].grad}, {"dsink": dsink}, torch.float32)


@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETED, reason="sessions interpret")
@pytest.mark.usefixtures("opens_sessions")
@pytest.mark.parametrize("mask", ["causal", "bits"])
def test_a_session_computes_the_same_bits_in_lockstep(blocks, mask):
    tensors, do, dlse = problem(bias=(2, 2), sink=True)
    options, _, _ = masked(mask)
    terms = {"softcap": 2.0, "alibi_slopes": slopes(2), "dropout": Dropout(0.25, 77, 3), "config": blocks(16, 16)}
    with session(lockstep=False):
        plain = run(tensors, do, dlse, **terms, **options)
    with session() as opened:
        for name, x in run(tensors, do, dlse, **terms, **options).items():
            assert torch.equal(plain[name], x), name
        assert not opened.fallbacks
