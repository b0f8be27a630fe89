"""torch's CPU attention: clean inside what its subject declares, and the defects that the declaration leaves out."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.subjects.torch_cpu import EXP_ERROR_16_BIT, TORCH_CPU, TorchCpu

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("causal", ["", " causal=top-left"])
@pytest.mark.parametrize("regime", ["normal", "ties", "logits-1e4", "negative", "v-cancelling", "outlier"])
def test_it_passes_every_check(dtype, causal, regime):
    sizes = "batch=2 heads_q=2 heads_kv=2 seq_q=70 seq_k=70 dim_qk=24 dim_v=24"
    result = judge_case(TORCH_CPU, parse_case(f"fv1 {sizes} dtype={dtype} regime={regime}{causal}"), Plan.run())

    assert result.failures == ()
    assert result.unsupported is None


@pytest.mark.parametrize("scale", [0.0, -0.3])
def test_its_causal_mask_is_multiplied_by_the_scale(scale):
    q = torch.ones(1, 1, 4, 8)
    o, _ = FLASH(q, q, q, 0.0, True, scale=scale)
    assert bool(torch.isnan(o).any()), "torch has mended its causal mask: let the subject support this scale"

    refused = TORCH_CPU.supports.refusal(parse_case(f"fv1 seq_q=4 seq_k=4 causal=top-left scale={scale}"))

    assert "multiplies its masked -inf by the scale" in refused


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_its_16_bit_exponential_is_coarse_and_within_the_declared_error(dtype):
    q = torch.zeros(1, 1, 4096, 16, dtype=dtype)
    q[..., 0] = torch.linspace(0, 3, 4096).to(dtype)
    q[..., 1] = torch.linspace(0, 2**-7, 4096).flip(0).to(dtype)
    k = torch.zeros(1, 1, 400, 16, dtype=dtype)
    k[..., 1:, :2] = -1
    exponent = (q[0, 0].double() @ k[0, 0].double().T)[:, 1]

    _, lse = FLASH(q, k, k, 0.0, False, scale=1.0)

    weight = (lse[0, 0].double().exp() - 1) / 399
    error = ((weight / exponent.exp() - 1).abs().max() * 2**24).item()
    rounding_of_lse = 2 * math.log(400) + 2
    assert 1000 < error < EXP_ERROR_16_BIT + rounding_of_lse


def test_empty_sequences_are_not_supported():
    assert TORCH_CPU.supports.refusal(parse_case("fv1 seq_k=0")) == "an empty batch or sequence"


def test_a_tiny_scale_makes_the_operands_of_its_gradients_subnormal():
    text = (
        "fv1 batch=3 seq_q=7 seq_k=7 dim_qk=64 dim_v=64 dtype=bf16 scale=1e-30 regime=logits-1e2 seed=147 do=expanded"
    )
    result = judge_case(TORCH_CPU, parse_case(text), Plan.run())

    assert result.failures == ()


class Scaled(TorchCpu):
    """The same kernel, declared to apply the scale elsewhere."""

    def __init__(self, scale_ds):
        self.scale_ds = scale_ds

    def form(self, case):
        return dataclasses.replace(super().form(case), scale_ds=self.scale_ds)


@pytest.mark.parametrize(
    "text",
    [
        "fv1 seq_k=2 dim_qk=8 dim_v=8 dtype=bf16 scale=10000 regime=overflow seed=1",
        "fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 dtype=bf16 scale=10000 regime=overflow seed=1 do=expanded",
        "fv1 batch=3 seq_q=18 seq_k=4 dtype=fp32 scale=10000 regime=tiny edits=q:2,0,17,8:0x1.fffffep127",
    ],
    ids=["dS", "dS of two rows", "Q"],
)
def test_a_large_scale_makes_the_operands_of_its_gradients_infinite(text):
    case = parse_case(text)

    assert judge_case(TORCH_CPU, case, Plan(checks=("accuracy", "nonfinite"))).failures == ()
    declared = Scaled("after")
    assert {v.output for v in judge_case(declared, case, Plan(checks=("accuracy", "nonfinite"))).failures} == {"dk"}
