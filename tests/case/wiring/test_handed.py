"""A tensor that a helper made is memory of the problem: a store into it and a step beyond it are found."""

import pytest
import torch
import triton
import triton.language as tl

from flashverify import Contract, Supports, judge_case, parse_case, subject
from flashverify.case.memory.handed import copied, handed_tensors
from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.hooks import interpreting

SUPPORTS = Supports(masks=("key_lengths",), backward=False)
CASE = parse_case("fv1 batch=2 seq_q=3 seq_k=5 dtype=fp32 klen=2,5 backward=no")


@triton.jit
def touch(ptr, out_ptr, n, STORE: tl.constexpr, BEYOND: tl.constexpr):
    at = tl.arange(0, 8)
    x = tl.load(ptr + at + BEYOND, mask=at + BEYOND < n + BEYOND, other=0.0)
    tl.store((ptr if STORE else out_ptr) + at, x, mask=at < n)


def touching(*, store, beyond):
    @subject(supports=SUPPORTS, contract=Contract(lse_base=None), device="cpu")
    def toucher(p):
        x = p.varlen()
        cu = x.cu_seqlens_k
        out = torch.zeros(8, dtype=torch.int32)
        touch[(1,)](cu, out, 3, STORE=store, BEYOND=beyond)
        return torch.zeros_like(p.q)

    return toucher


def errors(kernel, *checks):
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer):
        return {(v.check, v.error, v.output) for v in judge_case(kernel, CASE, checks=checks).failures}


def test_a_kernel_is_told_of_its_store():
    found = errors(touching(store=True, beyond=0), "sanitizer")

    assert ("sanitizer", "input-store", "ptr") in found


def test_a_kernel_is_told_of_its_load_beyond_the_end():
    assert errors(touching(store=False, beyond=1), "sanitizer") == {("sanitizer", "out-of-bounds", "ptr")}
    assert errors(touching(store=False, beyond=0), "sanitizer", "memory") == set()


def test_a_change_outside_triton_is_damage():
    def spoiled(p):
        p.varlen().k[1, 0, 0] = 5.0
        return torch.zeros_like(p.q)

    kernel = subject(supports=SUPPORTS, contract=Contract(lse_base=None), device="cpu")(spoiled)
    found = judge_case(kernel, CASE, checks=("memory",)).failures

    assert [(v.error, v.output, v.index) for v in found] == [("input", "k", (1, 0, 0))]
    assert "k[1, 0, 0] was overwritten with 5.0 (1 elements changed)" in found[0].message


def test_bits_are_compared_and_not_values():
    with handed_tensors(set()) as handed:
        nan = copied("x", torch.tensor([float("nan"), 0.0]))
        assert handed.damage() == []
        nan[1] = -0.0

    assert [damage.index for damage in handed.damage()] == [(1,)]
