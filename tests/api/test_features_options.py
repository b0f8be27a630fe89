"""Options of `assert_attention_close` and `oracle` that say what the kernel computes, and the ones that are refused."""

import math

import pytest
import torch

from flashverify import assert_attention_close, oracle
from tests.api.feature_problems import CU_K, CU_Q, DENSE, inputs_of


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"selection": torch.full((1, 1, 24, 2), 8), "selection_keys": 4},
            "entries from 8 to 8 is not accepted: -1 for none, or blocks 0 to 7",
        ),
        ({"selection": torch.zeros(1, 1, 24, 2)}, "selection of dtype torch.float32 is not accepted: integers"),
        (
            {"selection": torch.zeros(1, 4, 24, 2).int()},
            r"shape \[1, 4, 24, 2\] is not accepted: \[2 or 1, 2 or 1, 24, entries\]",
        ),
        ({"selection_rows": 4}, "selection_rows=4 is not accepted without selection"),
        ({"selection_keys": 0}, "selection_keys=0 is not accepted: an integer >= 1"),
        ({"window": 5}, r"window=5 is not accepted: None or \(left, right\)"),
        ({"window": (-1, 0)}, r"window=\(-1, 0\)"),
        ({"tree": [0]}, "tree"),
        ({"cu_q": CU_Q}, "cu_k=None"),
        ({"cu_q": CU_Q, "cu_k": CU_K}, "batch=2"),
        ({"key_lengths": [1.5, 2.0]}, "key_lengths"),
        ({"key_lengths": [1, 2, 3]}, "key_lengths=.*one length per sequence"),
        ({"softcap": -1.0}, "softcap=-1.0"),
        ({"scale": math.inf}, "scale=inf"),
        ({"alibi_slopes": torch.ones(3)}, r"alibi_slopes of shape \[3\] is not accepted: \[4\]"),
        ({"bias": torch.zeros(24, 32)}, r"bias of shape \[24, 32\] is not accepted: \[2 or 1, 4 or 1, 24, 32\]"),
        ({"bias": torch.full((1, 1, 24, 32), -math.inf)}, "bias holds a non-finite value.*mask="),
        (
            {"relative_bias": torch.zeros(4, 8)},
            "distance_buckets=None is not accepted: relative_bias and distance_buckets",
        ),
        ({"distance_buckets": [0]}, "relative_bias=None is not accepted: relative_bias and distance_buckets belong"),
        ({"relative_bias": torch.zeros(3, 8)}, r"relative_bias of shape \[3, 8\] is not accepted: \[4, buckets\]"),
        (
            {"relative_bias": torch.zeros(4, 8), "distance_buckets": [0, 1]},
            "distance_buckets of 2 entries is not accepted",
        ),
        (
            {"relative_bias": torch.zeros(4, 8), "distance_buckets": [0, 8, 1]},
            "values from 0 to 8 is not accepted: 0 to 7",
        ),
        ({"relative_bias": torch.full((4, 8), math.nan)}, "relative_bias holds a non-finite value"),
        ({"sink": torch.ones(4, dtype=torch.int64)}, "sink of dtype torch.int64"),
        ({"mask": torch.ones(5, 32, dtype=torch.bool)}, r"mask of shape \[5, 32\].*broadcast to \[2, 4, 24, 32\]"),
        ({"dropout_p": 1.0}, "dropout_p=1.0"),
        ({"dropout_p": 0.1}, "dropout_p=0.1 needs dropout_keep or dropout_seed"),
        ({"dropout_p": 0.1, "dropout_seed": -1}, "dropout_seed=-1"),
        ({"dropout_p": 0.1, "dropout_seed": 1, "dropout_offset": 2**32}, "dropout_offset=4294967296"),
        ({"dropout_keep": DENSE}, "dropout_keep is not accepted without dropout_p"),
        ({"padding": "zero"}, "padding='zero'"),
        ({"dbias": torch.zeros(1, 1, 24, 32), "dlse": torch.zeros(2, 4, 24)}, "bias=None"),
        ({"dsink": torch.zeros(4)}, "do=None is not accepted: the gradients dsink"),
        ({"do": torch.zeros(2, 4, 24, 8)}, r"do of shape \[2, 4, 24, 8\] is not accepted: \[2, 4, 24, 16\]"),
        ({"dlse": torch.full((2, 4, 24), math.nan)}, "dlse holds a non-finite value"),
    ],
)
def test_a_bad_option_is_named(options, message, draw):
    p = draw()

    with pytest.raises(ValueError, match=message):
        assert_attention_close(*inputs_of(p), o=p.do, **options)


def test_a_backward_that_keeps_o_in_higher_precision_is_right_unless_it_is_said_to_read_the_outputs(draw):
    p = draw(torch.bfloat16, kv=4)
    sink = p.normal(4).requires_grad_()
    logits = p.q.double() @ p.k.double().mT / 4
    every = torch.cat([logits, sink.double().view(1, 4, 1, 1).expand(2, 4, 24, 1)], -1)
    o, lse = torch.softmax(every, -1)[..., :-1] @ p.v.double(), every.logsumexp(-1)
    outputs = {"o": o.detach().bfloat16(), "lse": lse.detach().float()}
    outputs["dsink"] = torch.autograd.grad(o, sink, p.do.double())[0]

    with pytest.raises(AssertionError, match="does not read this O and LSE is judged with conditional=False"):
        assert_attention_close(*inputs_of(p), **outputs, do=p.do, sink=sink, conditional=True)
    for conditional in (None, False):
        assert_attention_close(*inputs_of(p), **outputs, do=p.do, sink=sink, conditional=conditional)
    outputs["dsink"] = outputs["dsink"] * (1 + 2.0**-3)
    with pytest.raises(AssertionError, match="dsink"):
        assert_attention_close(*inputs_of(p), **outputs, do=p.do, sink=sink)


def test_an_unknown_option_is_named_with_those_that_exist(draw):
    p = draw()

    for function in (oracle, assert_attention_close):
        with pytest.raises(TypeError, match=r"'windows'; accepted beside its own: layout, scale, causal, window"):
            function(*inputs_of(p), windows=(1, 2))


def test_the_base_of_the_form_counts_and_another_one_is_a_contradiction(draw, attention):
    from flashverify import Form

    p = draw()
    base_2 = attention(*inputs_of(p))["lse"] / math.log(2)

    assert_attention_close(*inputs_of(p), lse=base_2, form=Form(lse_base="2"))
    assert_attention_close(*inputs_of(p), lse=base_2, lse_base="2", form=Form(lse_base="2"))
    with pytest.raises(AssertionError, match="lse"):
        assert_attention_close(*inputs_of(p), lse=base_2, form=Form())
    with pytest.raises(ValueError, match=r"lse_base='e' contradicts form.lse_base='2'"):
        assert_attention_close(*inputs_of(p), lse=base_2, lse_base="e", form=Form(lse_base="2"))
