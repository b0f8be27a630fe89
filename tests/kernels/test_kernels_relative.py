"""A relative bias: forward and backward against autograd in float64, alone and together with everything else."""

import math
import re
from itertools import pairwise

import pytest
import torch

from flashverify_kernels import Options, RelativeBias, attention, attention_varlen, backward, forward
from flashverify_kernels.aot import TERMS
from flashverify_kernels.flatten import flatten, unflatten
from flashverify_kernels.reductions import table_gradient
from flashverify_kernels.runtime import INTERPRETED
from tests.kernels.terms_reference import compare, draw, masked, problem, reference, slopes

REACH = 6
BUCKETS = torch.tensor([3, 3, 2, 2, 1, 0, 0, 5, 4, 6, 6, 7, 7], dtype=torch.int32)
"""Bucket 8 of 9 is read by no distance."""


def relative(heads, seed=8):
    return RelativeBias(2 * draw(heads, 9, seed=seed), BUCKETS.to(torch.get_default_device()))


def expected(tensors, do, dlse, see, table, *, shift=0, reach=REACH, buckets=BUCKETS, **options):
    """`reference` with the relative bias as a bias over every head and sequence, and the gradient of that summed by hand."""
    (batch, _, sq, _), sk = tensors["q"].shape, tensors["k"].shape[2]
    distance = torch.arange(sk) - torch.arange(sq)[:, None] - torch.as_tensor(shift).reshape(-1, 1, 1)
    bucket = buckets.long().to(distance.device)[distance.clamp(-reach, reach) + reach].expand(batch, sq, sk)
    added = table.double()[:, bucket].transpose(0, 1)
    bias = tensors.get("bias")
    whole = added if bias is None else added + bias.double()
    found = reference({**tensors, "bias": whole}, do, dlse, see, shift=shift, **options)
    ds = found.pop("dbias")
    if bias is not None:
        found["dbias"] = ds.sum_to_size(bias.shape)
    sums = [torch.where(bucket[:, None] == n, ds, 0.0).sum((0, 2, 3)) for n in range(table.shape[1])]
    return found | {"dtable": torch.stack(sums, -1)}


def run(tensors, do, dlse, bias, **options):
    x = {name: value.detach().requires_grad_() for name, value in tensors.items()}
    table = bias.table.detach().requires_grad_()
    given = RelativeBias(table, bias.distance_buckets)
    o, lse = attention(**x, return_lse=True, relative_bias=given, allow_interpreted_bf16=True, **options)
    torch.autograd.backward([o, lse], [do, dlse])
    gradients = {f"d{name}": value.grad for name, value in x.items()}
    return {"o": o.detach(), "lse": lse.detach(), **gradients, "dtable": table.grad}


def check(mask, config, dtype=torch.float32, *, terms=None, sink=False, bias=None, **sizes):
    tensors, do, dlse = problem(dtype, bias=bias, sink=sink, **sizes)
    (batch, heads, sq, _), sk = tensors["q"].shape, tensors["k"].shape[2]
    options, see, shift = masked(mask, sq, sk, batch)
    shared, given = {"scale": 0.3, **(terms or {})}, relative(heads)
    got = run(tensors, do, dlse, given, config=config, **options, **shared)
    compare(got, expected(tensors, do, dlse, see, given.table, shift=shift, **shared), dtype)
    assert not got["dtable"][:, 8].any()
    return got


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("mask", ["none", "causal", "bottom-right with lengths", "window alone", "bits"])
def test_forward_and_backward_agree_with_autograd(blocks, mask, dtype):
    check(mask, blocks(16, 16), dtype, heads=4, kv_heads=2)


def test_everything_together_agrees_with_autograd(blocks):
    terms = {"softcap": 2.0, "alibi_slopes": slopes(2)}
    check("bottom-right with lengths", blocks(16, 32), terms=terms, sink=True, bias=(1, 2))


@pytest.mark.parametrize(("sq", "sk"), [(40, 3), (3, 40), (1, 17), (17, 1)])
def test_rectangles_whose_distances_leave_the_reach(blocks, sq, sk):
    check("none", blocks(16, 16), sq=sq, sk=sk)


@pytest.mark.parametrize("buckets", [[0], [1, 0, 2], [2] * 9])
def test_a_reach_of_nothing_and_few_buckets(blocks, buckets):
    tensors, do, dlse = problem()
    _, see, _ = masked("none")
    table, buckets = draw(2, 3, seed=9), torch.tensor(buckets, dtype=torch.int32)
    got = run(tensors, do, dlse, RelativeBias(table, buckets), config=blocks(16, 16), scale=0.3)
    wanted = expected(tensors, do, dlse, see, table, reach=len(buckets) // 2, buckets=buckets, scale=0.3)
    compare(got, wanted, torch.float32)


def test_packed_sequences_are_as_if_alone(blocks):
    lengths_q, lengths_k = [5, 0, 19, 3], [9, 4, 19, 0]
    cu_q, cu_k = (torch.tensor([0, *torch.tensor(n).cumsum(0)], dtype=torch.int32) for n in (lengths_q, lengths_k))
    tensors, do, dlse = problem(batch=1, sq=sum(lengths_q) + 2, sk=sum(lengths_k))
    x = {name: tensors[name][0].transpose(0, 1).contiguous().requires_grad_() for name in "qkv"}
    given = relative(2)
    table = given.table.clone().requires_grad_()
    o, lse = attention_varlen(
        *x.values(), cu_q, cu_k, max_q=19, max_k=20, relative_bias=RelativeBias(table, BUCKETS), causal="bottom-right",
        scale=0.3, config=blocks(16, 16),
    )  # fmt: skip
    torch.autograd.backward([o, lse], [do[0].transpose(0, 1), dlse[0]])
    total = torch.zeros_like(given.table, dtype=torch.float64)
    for (a, b), (c, e) in zip(pairwise(cu_q), pairwise(cu_k), strict=True):
        if b == a:
            continue
        shift = int(e - c) - int(b - a)
        part = {"q": tensors["q"][:, :, a:b], "k": tensors["k"][:, :, c:e], "v": tensors["v"][:, :, c:e]}
        see = (torch.arange(int(e - c)) <= torch.arange(int(b - a))[:, None] + shift)[None, None]
        wanted = expected(part, do[:, :, a:b], dlse[:, :, a:b], see, given.table, shift=shift, scale=0.3)
        total += wanted["dtable"]
        got = {"o": o[a:b].detach().transpose(0, 1), "dq": x["q"].grad[a:b].transpose(0, 1)}
        compare(got, {name: wanted[name][0] for name in got}, torch.float32)
    compare({"dtable": table.grad}, {"dtable": total}, torch.float32)


def test_only_what_is_asked_for_is_computed():
    tensors, do, _ = problem(bias=(1, 1), sink=True)
    options = Options(bias=tensors["bias"], sink=tensors["sink"], relative_bias=relative(2))
    inputs = [tensors[name] for name in "qkv"]
    o, lse2 = forward(*inputs, options)
    every = backward(do, *inputs, o, lse2, options)
    names = ("dq", "dk", "dv", "dbias", "dsink", "drelative_bias")
    for n, name in enumerate(names):
        got = backward(do, *inputs, o, lse2, options, needs=tuple(m == n for m in range(6)))
        assert [other for other in names if getattr(got, other) is not None] == [name]
        assert torch.equal(getattr(got, name), getattr(every, name))


def test_a_table_without_a_gradient_costs_none_of_it(monkeypatch):
    def never(*_):
        raise AssertionError("the gradient was computed")

    monkeypatch.setattr("flashverify_kernels.launch.table_gradient", never)
    tensors, do, _ = problem()
    x = {name: value.detach().requires_grad_() for name, value in tensors.items()}
    attention(**x, relative_bias=relative(2)).backward(do)
    assert x["q"].grad is not None


def test_tables_at_the_end_of_fp32_give_finite_results():
    tensors, _, _ = problem()
    largest = torch.finfo(torch.float32).max
    table = torch.tensor([[largest, -largest, 0.0, 1e38, -1e38, 3.0, 0.0, -math.inf, 0.0]] * 2)
    options = Options(relative_bias=RelativeBias(table, BUCKETS))
    o, lse2 = forward(*(tensors[name] for name in "qkv"), options)
    assert torch.isfinite(o).all()
    assert torch.isfinite(lse2).all()


def test_the_gradient_does_not_depend_on_the_rows_held_at_once(monkeypatch):
    ds, given = draw(2, 3, 21, 37, seed=4), relative(3)
    positions = torch.arange(21)[None]
    whole = table_gradient(ds, positions, given)
    monkeypatch.setattr("flashverify_kernels.reductions._AT_ONCE", 1)
    torch.testing.assert_close(table_gradient(ds, positions, given), whole, rtol=1e-6, atol=0)


def test_a_nan_reaches_its_own_bucket_alone():
    ds = draw(1, 1, 9, 9, seed=4)
    ds[0, 0, 4, 5] = math.nan  # distance 1
    found = table_gradient(ds, torch.arange(9)[None], relative(1))
    assert torch.isnan(found[0]).tolist() == [n == int(BUCKETS[REACH + 1]) for n in range(9)]


def test_the_option_survives_being_plain_values():
    given = relative(2)
    found = unflatten(flatten(Options(relative_bias=given))).relative_bias
    assert found.table is given.table
    assert found.distance_buckets is given.distance_buckets
    assert {"relative_bias", "drelative_bias"} <= TERMS.keys()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (torch.zeros(2, 9), TypeError, "relative_bias: expected a RelativeBias, got Tensor"),
        (RelativeBias(torch.zeros(2, 9).half(), BUCKETS), TypeError, "relative_bias.table: expected torch.float32, got torch.float16"),
        (RelativeBias(torch.zeros(3, 9), BUCKETS), ValueError,
         "relative_bias.table: expected shape (2, buckets), 1 bucket or more, got (3, 9)"),
        (RelativeBias(torch.zeros(2, 0), BUCKETS), ValueError, "relative_bias.table: expected shape (2, buckets)"),
        (RelativeBias(torch.zeros(2, 9), BUCKETS.long()), TypeError,
         "relative_bias.distance_buckets: expected torch.int32, got torch.int64"),
        (RelativeBias(torch.zeros(2, 9), BUCKETS[1:]), ValueError,
         "relative_bias.distance_buckets: expected shape (2 * reach + 1,), got (12,)"),
        (RelativeBias(torch.zeros(2, 7), BUCKETS), ValueError,
         "relative_bias.distance_buckets: expected 0 to 6, got values from 0 to 7"),
    ],
)  # fmt: skip
@pytest.mark.skipif(not INTERPRETED, reason="the tensors are made for the CPU")
def test_what_is_no_relative_bias_is_refused(given, error, message):
    q, k = torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 6, 8)
    with pytest.raises(error, match=re.escape(message)):
        attention(q, k, k, relative_bias=given)
