"""One tensor per pair holds the whole mask, or the sum of all biases."""

import dataclasses

import pytest
import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.truth import inputs_of

SHAPE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32"


def made(words):
    return materialize(parse_case(f"{SHAPE} {words}"))[0]


def test_a_bitmap_that_is_given_stands_in_the_mask_and_not_the_one_that_the_case_draws():
    problem = made("bitmap=99,1 klen=9,4")
    turned = dataclasses.replace(problem, bitmap=~problem.bitmap)

    assert bool((turned.dense_mask() ^ problem.dense_mask())[0].all())
    assert not bool((turned.dense_mask() | problem.dense_mask())[1, :, :, 4:].any())


def test_without_a_mask_there_is_none():
    assert made("").dense_mask() is None
    assert made("").dense_bias() is None


@pytest.mark.parametrize(
    ("words", "sees"),
    [
        ("causal=bottom-right", lambda b, h, i, j: j <= i + 4),
        ("causal=top-left klen=2,9", lambda b, h, i, j: j <= i and j < (2, 9)[b]),
        ("window=1,0 window_align=bottom-right", lambda b, h, i, j: i + 3 <= j <= i + 4),
        ("qlen=5,1 klen=9,3 causal=bottom-right", lambda b, h, i, j: (j <= i + 4, i < 1 and j <= i + 2)[b]),
    ],
)
def test_the_mask_is_the_rule_of_the_case(words, sees):
    mask = made(words).dense_mask()
    expected = [[[[sees(b, h, i, j) for j in range(9)] for i in range(5)] for h in range(4)] for b in range(2)]

    assert mask.dtype == torch.bool
    assert torch.equal(mask.expand(2, 4, 5, 9), torch.tensor(expected))


def test_a_mask_of_each_head_has_its_heads():
    p = made("bitmap=96,1")

    assert torch.equal(p.dense_mask().expand(2, 4, 5, 9), p.bitmap.expand(2, 4, 5, 9))


@pytest.mark.parametrize(
    "words",
    [
        "bias=full",
        "bias=shared",
        "alibi=yes causal=bottom-right",
        "relative_bias=8,20,both causal=bottom-right",
        "alibi=wild bias=head relative_bias=6,5",
    ],
)
def test_the_bias_is_the_sum_of_those_of_the_oracle(words):
    p = made(f"{words} seed=3")
    bias = p.dense_bias()
    whole = slice(0, 5), slice(0, 9)
    expected = sum(term(*whole) if callable(term) else term for term in inputs_of(p)[0].biases)

    assert bias.dtype == torch.float32
    assert torch.allclose(bias.double().expand(2, 4, 5, 9), expected.expand(2, 4, 5, 9), rtol=1e-6, atol=1e-6)


def test_gradients_flow_to_the_biases():
    p = made("bias=head relative_bias=8,20,both")
    bias, table = p.bias.clone().requires_grad_(), p.relative_bias.clone().requires_grad_()
    dataclasses.replace(p, bias=bias, relative_bias=table).dense_bias().sum().backward()

    assert torch.equal(bias.grad, torch.full_like(bias, 2.0))  # two sequences share it
    assert table.grad.sum() == 2 * 4 * 5 * 9
