"""A problem with contiguous tensors holds the same values in either layout, and gradients flow back to the tensors that it was made of."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.case.memory.guard import guard_outputs
from flashverify.case.memory.materialize import materialize
from flashverify.case.tensors import TENSORS

SHAPE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32"
CASES = (
    f"{SHAPE} gap=8 offset=3 do=transposed",
    f"{SHAPE} layout=bshd expand=yes do=expanded bias=head sink=yes strided=yes dlse=yes",
    f"{SHAPE} page_size=4 gap=8 klen=9,3 backward=no",
)


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_every_tensor_is_contiguous_and_holds_what_it_held(text, layout):
    p = materialize(parse_case(text))[0]
    made = p.contiguous(layout)
    for name, spec in TENSORS.items():
        before, after = getattr(p, name), getattr(made, name)
        assert (before is None) == (after is None)
        if before is not None:
            turned = layout == "bshd" and spec.dtype == "case"
            assert torch.equal(before, after)
            assert (after.transpose(1, 2) if turned else after).is_contiguous()
    if p.pages is not None:
        for name in ("k", "v"):
            after = getattr(made.pages, name)
            assert torch.equal(getattr(p.pages, name), after)
            assert (after if layout == "bshd" else after.transpose(1, 2)).is_contiguous()


def test_what_is_contiguous_already_is_not_copied():
    p = materialize(parse_case(f"{SHAPE} layout=bshd"))[0]

    assert p.contiguous("bshd").q is p.q
    assert p.contiguous("bhsd").q is not p.q


def test_copies_are_guarded_and_gradients_flow_back():
    p = materialize(parse_case(CASES[0]))[0]
    leaf = p.q.detach().requires_grad_()
    with guard_outputs() as guard:
        q = dataclasses.replace(p, q=leaf).contiguous().q
        assert guard.is_guarded(q)
        (q * p.do).sum().backward()

    assert torch.equal(leaf.grad, p.do)


@pytest.mark.parametrize("text", CASES)
def test_batched_views_share_the_memory_of_the_case(text):
    p = materialize(parse_case(text))[0]
    x = p.bshd()
    for name in ("q", "k", "v", "do"):
        given, turned = getattr(p, name), getattr(x, name)
        assert (given is None) == (turned is None)
        if given is not None:
            assert turned.data_ptr() == given.data_ptr()
            assert torch.equal(turned, given.permute(0, 2, 1, 3))
