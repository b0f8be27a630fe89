"""torch's CPU attention: clean inside what its subject declares, and the defects that the declaration leaves out."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.adapters.torch_cpu import EXP_ERROR_16_BIT, TORCH_CPU, TorchCpu
from flashverify.checks import Plan, judge_case
from flashverify.subjects.interface import Gradients
from tests.fast_tier import fast_one_in

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("causal", ["", " causal=top-left"])
@pytest.mark.parametrize(
    "regime", fast_one_in(4, ["normal", "ties", "logits-1e4", "negative", "v-cancelling", "outlier"])
)
def test_it_passes_every_check(dtype, causal, regime):
    sizes = "batch=2 heads_q=2 heads_kv=2 seq_q=70 seq_k=70 dim_qk=24 dim_v=24"
    result = judge_case(TORCH_CPU, parse_case(f"fv1 {sizes} dtype={dtype} regime={regime}{causal}"), Plan.run())

    assert result.failures == ()
    assert result.unsupported is None


@pytest.mark.parametrize("scale", [0.0, -0.3])
def test_a_causal_mask_with_a_scale_that_is_not_positive_is_refused(scale, record_property):
    q = torch.ones(1, 1, 4, 8)
    o, _ = FLASH(q, q, q, 0.0, True, scale=scale)
    record_property("torch multiplies its causal mask by the scale", bool(torch.isnan(o).any()))

    refused = TORCH_CPU.supports.refusal(parse_case(f"fv1 seq_q=4 seq_k=4 causal=top-left scale={scale}"))

    assert "multiplies its masked -inf by the scale" in refused


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_its_16_bit_exponential_is_within_the_declared_error(dtype, record_property):
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
    record_property("error of torch's 16-bit exponential in 2^-24", error)
    assert error < EXP_ERROR_16_BIT + rounding_of_lse


def test_empty_sequences_are_not_supported():
    assert TORCH_CPU.supports.refusal(parse_case("fv1 seq_k=0")) == "an empty batch or sequence"


def test_a_tiny_scale_makes_the_operands_of_its_gradients_subnormal():
    text = (
        "fv1 batch=3 seq_q=7 seq_k=7 dim_qk=64 dim_v=64 dtype=bf16 scale=1e-30 regime=logits-1e2 seed=147 do=expanded"
    )
    result = judge_case(TORCH_CPU, parse_case(text), Plan.run())

    assert result.failures == ()


class ScaledOperand(TorchCpu):
    """torch's forward, and a backward whose products multiply one operand by the scale in fp32: the same on every processor.

    Args:
        operand: `ds`, or `inputs`, which are K for dQ and Q for dK.
        declared: the form's `scale_ds`.
    """

    def __init__(self, operand, declared):
        self.operand, self.declared = operand, declared

    def form(self, case):
        return dataclasses.replace(super().form(case), scale_ds=self.declared)

    def backward(self, problem, forward):
        q, k, v, do, o = (x.double() for x in (problem.q, problem.k, problem.v, problem.do, forward.o))
        p = (problem.scale * (q @ k.mT) - forward.lse.double()[..., None]).exp()
        ds = p * (do @ v.mT - (do * o).sum(-1, keepdim=True))
        scaled = {name: name == self.operand for name in ("ds", "inputs")}
        ds, q, k = (
            x.float() * problem.scale if scaled[name] else x.float()
            for x, name in ((ds, "ds"), (q, "inputs"), (k, "inputs"))
        )
        gradients = ds @ k, ds.mT @ q, p.mT @ do
        return Gradients(*(x.to(problem.q.dtype) for x in gradients))


SCALED = {
    "dS": ("ds", "fv1 seq_k=2 dim_qk=8 dim_v=8 dtype=bf16 scale=10000 regime=overflow seed=1"),
    "dS of two rows": (
        "ds",
        "fv1 seq_q=2 seq_k=2 dim_qk=8 dim_v=8 dtype=bf16 scale=10000 regime=overflow seed=1 do=expanded",
    ),
    "Q": (
        "inputs",
        "fv1 batch=3 seq_q=18 seq_k=4 dtype=fp32 scale=10000 regime=tiny edits=q:2,0,17,8:0x1.fffffep127",
    ),
}
"""(The operand that its scale makes infinite, case)."""


def failures(subject, text):
    return judge_case(subject, parse_case(text), Plan(checks=("accuracy", "nonfinite"))).failures


@pytest.mark.parametrize("name", SCALED)
def test_a_large_scale_passes_whether_or_not_torch_makes_an_operand_infinite(name):
    assert failures(TORCH_CPU, SCALED[name][1]) == ()


@pytest.mark.parametrize("name", SCALED)
def test_a_scale_that_makes_an_operand_infinite_is_a_failure_unless_the_form_declares_it(name):
    operand, text = SCALED[name]

    assert failures(ScaledOperand(operand, "operand"), text) == ()
    assert "dk" in {v.output for v in failures(ScaledOperand(operand, "after"), text)}
