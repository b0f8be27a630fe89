"""Tokens one after the other hold what the sequences of the problem hold, and what a kernel returns of them lies where it belongs."""

import dataclasses
import itertools

import pytest
import torch

from flashverify import UsageError, parse_case
from flashverify.case.memory.guard import guard_outputs
from flashverify.case.memory.materialize import materialize

SHAPE = "fv1 heads_q=4 heads_kv=2 seq_q=6 seq_k=9 dtype=fp16 padding=nan"
CASES = {
    "whole": f"{SHAPE} batch=3",
    "rows before heads": f"{SHAPE} batch=3 layout=bshd",
    "gaps": f"{SHAPE} batch=3 gap=8 offset=3",
    "one head for all": f"{SHAPE} batch=3 expand=yes",
    "lengths": f"{SHAPE} batch=3 qlen=2,0,6 klen=9,4,0",
    "key lengths": f"{SHAPE} batch=3 klen=0,4,1 layout=bshd",
    "packed": f"{SHAPE} packed=0,2,2,5/0,4,5,8",
    "no sequence": f"{SHAPE} batch=0",
    "no rows": "fv1 batch=2 seq_q=0 seq_k=3 qlen=0,0",
}


def made(name):
    return materialize(parse_case(CASES[name]))[0]


def parts(p, along):
    """Per sequence its rows `[n, H, D]` of q and dO, or its keys of k and v."""
    packed = p.case.mask.packed
    tensors = (p.q, p.do) if along == "row" else (p.k, p.v)
    if packed is not None:
        cu = packed.cu_q if along == "row" else packed.cu_k
        return [[x[0, :, a:b].transpose(0, 1) for x in tensors] for a, b in itertools.pairwise(cu)]
    size = p.case.seq_q if along == "row" else p.case.seq_k
    inside = (p.case.rows_inside if along == "row" else p.case.keys_inside) or (size,) * p.case.batch
    return [[x[b, :, :n].transpose(0, 1) for x in tensors] for b, n in enumerate(inside)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("along", ["row", "key"])
def test_each_sequence_lies_between_its_cumulative_lengths(name, along):
    p = made(name)
    x = p.varlen()
    cu = x.cu_seqlens_q if along == "row" else x.cu_seqlens_k
    flat = (x.q, x.do) if along == "row" else (x.k, x.v)
    expected = parts(p, along)

    assert cu.dtype == torch.int32
    assert cu[0] == 0
    assert len(cu) == len(expected) + 1
    for s, sequence in enumerate(expected):
        for tensor, own in zip(flat, sequence, strict=True):
            assert torch.equal(tensor[cu[s] : cu[s + 1]], own)
    longest = x.max_seqlen_q if along == "row" else x.max_seqlen_k
    assert longest >= max((len(sequence[0]) for sequence in expected), default=0)


@pytest.mark.parametrize("name", ["lengths", "key lengths", "packed"])
def test_padding_keeps_its_poison_behind_the_last_sequence(name):
    x = made(name).varlen()
    behind = x.k[x.cu_seqlens_k[-1] :]

    assert len(behind)
    assert behind.isnan().all()
    assert not x.k[: x.cu_seqlens_k[-1]].isnan().any()


@pytest.mark.parametrize(("name", "copy"), [("packed", False), ("rows before heads", False), ("whole", True)])
def test_only_strides_that_tokens_cannot_have_are_copied(name, copy):
    p = made(name)

    assert (p.varlen().q.untyped_storage().data_ptr() != p.q.untyped_storage().data_ptr()) == copy


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("layout", "lse_layout"), [("thd", "ht"), ("htd", "th")])
def test_outputs_go_back_where_their_rows_came_from(name, layout, lse_layout):
    p = made(name)
    o = p.varlen().do
    lse = o[..., 0].float()
    found, found_lse = p.outputs(
        o if layout == "thd" else o.transpose(0, 1), lse if lse_layout == "th" else lse.T, layout, lse_layout
    )

    assert torch.equal(found.nan_to_num(9.0), p.do.nan_to_num(9.0))
    assert torch.equal(found_lse.nan_to_num(9.0), p.do[..., 0].float().nan_to_num(9.0))


@pytest.mark.parametrize("name", ["lengths", "whole", "packed"])
def test_gradients_flow_back_through_the_copies(name):
    p = made(name)
    leaf = p.k.detach().requires_grad_()
    x = dataclasses.replace(p, k=leaf).varlen()
    weights = torch.arange(x.k.numel()).view(x.k.shape).half()
    (x.k * weights)[: x.cu_seqlens_k[-1]].sum().backward()
    inside = torch.zeros_like(weights, dtype=torch.bool)
    inside[: x.cu_seqlens_k[-1]] = True
    expected = p.gradients(x.q, weights * inside, weights * inside, "thd")["dk"]

    assert torch.equal(leaf.grad, expected)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_gradients_of_whole_tensors_are_turned(layout):
    p = made("whole")
    given = p if layout == "bhsd" else p.bshd()
    found = p.gradients(given.q, given.k, given.v, layout)

    assert all(torch.equal(found[f"d{name}"], getattr(p, name)) for name in "qkv")


def test_rows_that_nobody_wrote_stay_known_as_such():
    p = made("lengths")
    with guard_outputs() as guard:
        o = torch.empty_like(p.varlen().do)
        o[:5] = 1.0
        found = p.outputs(o, layout="thd")
        unwritten = guard.unwritten(found)

    assert (~unwritten[0, :, :2]).all()  # 8 rows belong to the problem, the first 5 are written
    assert (~unwritten[2, :, :3]).all()
    assert unwritten[2, :, 3:].all()
    assert unwritten[1].all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.outputs(p.q, layout="dhs"), "layout='dhs' is not accepted: one of bhsd, bshd, thd, htd"),
        (lambda p: p.outputs(p.q, p.q, lse_layout="tt"), "lse_layout='tt' is not accepted: one of bhs, bsh, th, ht"),
        (lambda p: p.outputs(p.q[:, :, :2]), r"o is \[3, 4, 2, 16\]; accepted with layout='bhsd': \[3, 4, 6, D\]"),
        (lambda p: p.outputs(p.q, p.q[..., 0, 0], "bhsd", "ht"), r"lse is \[3, 4\]; .* 'ht'|: \[4, 18\]"),
        (lambda p: p.gradients(p.q, p.q, p.v), r"dk is \[3, 4, 6, 16\]; .*: \[3, 2, 9, D\]"),
        (lambda p: p.contiguous("hbsd"), "layout='hbsd' is not accepted: one of bhsd, bshd"),
    ],
)
def test_a_wrong_layout_is_named(call, message):
    with pytest.raises(UsageError, match=message):
        call(made("whole"))
