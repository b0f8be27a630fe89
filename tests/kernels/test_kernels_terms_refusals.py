"""Softcap, ALiBi, bias, sinks and dropout that are not accepted."""

import math
import re

import pytest
import torch

from flashverify_kernels import Dropout, Options, Packed, attention, forward
from flashverify_kernels.runtime import INTERPRETED
from tests.kernels.terms_reference import problem


def test_changing_a_bias_between_forward_and_backward_is_noticed():
    tensors, do, _ = problem(bias=(1, 1))
    o = attention(tensors["q"].requires_grad_(), tensors["k"], tensors["v"], bias=tensors["bias"])
    tensors["bias"].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.backward(do)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"softcap": "1"}, TypeError, "softcap: expected a number, got '1' (str)"),
        ({"softcap": 0.0}, ValueError, "softcap: expected a positive number from 2^-100 to 2^100, got 0.0"),
        ({"softcap": -1.0}, ValueError, "softcap: expected a positive number from 2^-100 to 2^100, got -1.0"),
        ({"softcap": math.nan}, ValueError, "softcap: expected a positive number from 2^-100 to 2^100, got nan"),
        ({"softcap": 1e-20, "scale": 1e30}, ValueError, "softcap: expected scale / softcap to be a finite fp32 number"),
        ({"alibi_slopes": [1.0]}, TypeError, "alibi_slopes: expected a tensor, got list"),
        ({"alibi_slopes": torch.zeros(2).half()}, TypeError, "alibi_slopes: expected torch.float32, got torch.float16"),
        ({"alibi_slopes": torch.zeros(1)}, ValueError, "alibi_slopes: expected shape (2,), one per query head, got (1,)"),
        ({"alibi_slopes": torch.zeros(2, requires_grad=True)}, ValueError, "alibi_slopes: slopes have no gradient"),
        ({"sink": torch.zeros(2, 1)}, ValueError, "sink: expected shape (2,), one per query head, got (2, 1)"),
        ({"bias": torch.zeros(4, 6).double()}, TypeError, "bias: expected torch.float32, got torch.float64"),
        ({"bias": torch.zeros(4, 6)}, ValueError,
         "bias: expected shape (1, 2, 4, 6), the first two axes possibly 1, got (4, 6)"),
        ({"bias": torch.zeros(1, 2, 4, 1)}, ValueError, "bias: expected shape (1, 2, 4, 6)"),
        ({"bias": torch.zeros(1, 3, 4, 6)}, ValueError, "bias: expected shape (1, 2, 4, 6)"),
        ({"bias": torch.zeros(1, 2, 6, 4).transpose(2, 3)}, ValueError, "bias: the last axis must have stride 1"),
        ({"bias": torch.zeros(1, 2, 4, 6, device="meta")}, ValueError, "bias: expected device cpu (that of q), got meta"),
        ({"dropout": 0.1}, TypeError, "dropout: expected a Dropout, got float"),
    ],
)  # fmt: skip
@pytest.mark.skipif(not INTERPRETED, reason="the tensors are made for the CPU")
def test_terms_are_refused_by_name_and_value(options, error, message):
    q, k = torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 6, 8)
    with pytest.raises(error, match=re.escape(message)):
        attention(q, k, k, **options)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((True,), TypeError, "p: expected a number, got True (bool)"),
        ((1.0,), ValueError, "p: expected a number from 0 to below 1, got 1.0"),
        ((-0.1,), ValueError, "p: expected a number from 0 to below 1, got -0.1"),
        ((math.nan,), ValueError, "p: expected a number from 0 to below 1, got nan"),
        ((0.1, 2**64), ValueError, "seed: expected a whole number from 0 to 2^64 - 1"),
        ((0.1, 0, -1), ValueError, "offset: expected a whole number from 0 to 2^32 - 1, got -1"),
        ((0.1, 0.5), TypeError, "seed: expected a whole number, got 0.5 (float)"),
    ],
)
def test_dropout_is_refused_by_name_and_value(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Dropout(*arguments)


def test_a_bias_of_packed_sequences_is_as_wide_as_the_longest_one():
    q = torch.zeros(1, 2, 4, 8)
    cu = torch.tensor([0, 4], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"bias: expected shape \(1, 2, 4, 5\), .*, got \(1, 2, 4, 4\)"):
        forward(q, q, q, Options(bias=torch.zeros(1, 2, 4, 4), packed=Packed(cu, cu, 4, 5)))
