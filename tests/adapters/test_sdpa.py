"""torch's scaled_dot_product_attention on the CPU: right as users call it, and what it may be given."""

import pytest
import torch

from flashverify import judge_case, load_subject, parse_case
from flashverify.adapters import sdpa
from flashverify.errors import UsageError

SIZES = "batch=2 heads_q=4 heads_kv=2 dim_qk=16 dim_v=16"
RIGHT = torch.nn.functional.scaled_dot_product_attention


@pytest.mark.parametrize("backend", ["flash", "math"])
@pytest.mark.parametrize(
    ("attn_mask", "rest"),
    [
        (None, "seq_q=1 seq_k=13 dtype=bf16"),
        (None, "seq_q=9 seq_k=13 dtype=fp32 causal=top-left scale=0.3"),
        ("bool", "seq_q=7 seq_k=5 dtype=fp16 causal=bottom-right window=2,0"),
        ("float", "seq_q=1 seq_k=13 dtype=fp32 causal=bottom-right bias=full"),
    ],
)
def test_grouped_heads_single_queries_and_masks_are_right(backend, attn_mask, rest):
    kernel, case = sdpa(backend, attn_mask=attn_mask, device="cpu"), parse_case(f"fv1 {SIZES} {rest}")

    assert kernel.supports.refusal(case) is None
    assert judge_case(kernel, case, checks=("accuracy", "nonfinite", "memory", "padding")).failures == ()


WRONG = {
    "scale": lambda given: {**given, "scale": given["scale"] * 1.01},
    "is_causal": lambda given: {**given, "is_causal": False},
    "enable_gqa": None,
}


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_that_does_not_arrive_is_found(name, monkeypatch):
    def lost(q, k, v, **given):
        if name == "enable_gqa":
            return RIGHT(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), **{**given, "enable_gqa": False})
        return RIGHT(q, k, v, **WRONG[name](given))

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lost)
    case = parse_case(f"fv1 {SIZES} seq_q=9 seq_k=9 dtype=fp32 causal=top-left")

    assert judge_case(sdpa("math", device="cpu"), case, checks=("accuracy",)).failures


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "triton"}, "backend='triton' is not accepted"),
        ({"attn_mask": "int"}, "attn_mask='int' is not accepted"),
        ({"backend": "cudnn", "device": "cpu"}, "is not accepted on the CPU"),
        ({"backend": "flash", "attn_mask": "bool", "device": "cuda"}, "takes no mask on a GPU"),
        ({"device": "cpu", "dim": 64}, "dim=64 is not accepted: Supports has no such field"),
        ({"device": "cpu", "contract": {"lse": "e"}}, "lse='e' is not accepted: Contract has no such field"),
    ],
)
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        sdpa(**given)


def test_what_is_declared_otherwise_replaces_and_conditions_add_up():
    kernel = sdpa("flash", device="cpu", name="mine", gqa=False, also=lambda case: "odd" if case.seq_q % 2 else None)
    refusal = kernel.supports.refusal

    assert kernel.name == "mine"
    assert "heads_kv" in refusal(parse_case(f"fv1 {SIZES} seq_q=2 seq_k=2"))
    assert refusal(parse_case("fv1 seq_q=3 seq_k=3")) == "odd"
    assert "subnormal in fp32" in refusal(parse_case("fv1 seq_q=2 seq_k=2 scale=1e-40"))


@pytest.mark.parametrize("name", ["sdpa-flash", "sdpa-cudnn"])
def test_the_backends_that_take_grouped_heads_are_timed_with_them(name):
    case = parse_case("fv1 heads_q=8 heads_kv=2 seq_q=64 seq_k=64 dim_qk=64 dim_v=64")

    assert load_subject(name).supports.refusal(case) is None
    assert load_subject("sdpa-efficient").supports.refusal(case) is not None
