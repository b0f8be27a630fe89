"""What is said of planted defects of precision: the step that is rounded, and the form that would allow it."""

import dataclasses
import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.precision import precision_words
from flashverify.numerics import Form
from tests.diagnosis.mask_defects import given
from tests.diagnosis.planted import LOG2E, Plain
from tests.diagnosis.test_diagnosis import CASE, FORWARD, first_failure, planted
from tests.fast_tier import fast_one_in

FP32 = FORWARD.replace("seq_k=7", "seq_k=40") + "regime=normal "


def bf16(x):
    return x.to(torch.bfloat16).double()


def cut(x):
    return (x.float().view(torch.int32) & -(1 << 16)).view(torch.float32).double()


def exact(x):
    return x


def softmax(*, p=exact, summed=exact, acc=exact, exp=torch.exp):
    """`Plain.output` and its LSE by a running softmax over tiles of 16 keys."""

    def output(self, o, z, v, lse):
        top = torch.full_like(z[..., :1], -torch.inf)
        total, out = torch.zeros_like(top), torch.zeros_like(o)
        for at in range(0, z.shape[-1], 16):
            part = z[..., at : at + 16]
            new = torch.maximum(top, part.amax(-1, keepdim=True))
            pivot = torch.where(new == -torch.inf, 0.0, new)
            alpha = torch.where(top == -torch.inf, 0.0, (top - pivot).exp())
            w = torch.where(part == -torch.inf, 0.0, exp(part - pivot))
            total = total * alpha + summed(w).sum(-1, keepdim=True)
            out = acc(out * alpha + p(w) @ v[..., at : at + 16, :])
            top = new
        self.running = (torch.where(top == -torch.inf, 0.0, top) + total.log()).squeeze(-1)
        return out / torch.where(total == 0, 1.0, total)

    return {"output": output, "lse": lambda self, lse, _: self.running}


def quadratic(x):
    """2^t by a parabola through 1, sqrt 2 and 2."""
    t = x * LOG2E
    whole = t.floor()
    f = t - whole
    return (1 + f * (4 * math.sqrt(2) - 5 + 0.0 + (6 - 4 * math.sqrt(2)) * f)) * torch.exp2(whole)


def gradients(*, p=exact, ds=exact, acc=exact):
    """A backward that rounds its weights, dS or its accumulators after each tile of 16."""

    def backward(self, problem, forward):
        q, k, v, _, z, see, _, group = forward.saved
        do = problem.do.double()
        w = torch.where(see, (z - forward.lse.double().unsqueeze(-1)).exp(), 0.0)
        delta = (do * forward.o.double()).sum(-1)
        offset = delta if problem.dlse is None else delta - problem.dlse.double()
        s, w = ds(w * (do @ v.mT - offset.unsqueeze(-1))), p(w)

        def summed(left, right, axis):
            total = 0.0
            for at in range(0, right.shape[2], 16):
                total = acc(total + left.narrow(axis, at, min(16, right.shape[2] - at)) @ right[:, :, at : at + 16])
            return total

        dq = problem.scale * summed(s, k, 3)
        dk = self.group_sum(problem.scale * summed(s.mT, q, 3), group)
        dv = self.group_sum(summed(w.mT, do, 3), group)
        right = Plain.backward(self, problem, forward)
        dtype = problem.q.dtype
        return dataclasses.replace(right, dq=dq.to(dtype), dk=dk.to(dtype), dv=dv.to(dtype))

    return {"backward": backward}


def words(subject, text, seconds=300):
    case = parse_case(text)
    verdict = first_failure(subject, case)
    assert verdict is not None, "the planted defect does not show"
    return precision_words(subject, case, verdict, Clock().end(seconds))


def in_int8(x):
    """Each 16 rows or keys in 127 steps up to the largest of them."""
    parts = []
    for part in x.double().split(16, 2):
        step = part.abs().amax((2, 3), keepdim=True) / 127
        parts.append((part / step).round() * step)
    return torch.cat(parts, 2).to(x.dtype)


def logarithm(self, lse, _):
    """The exponent of the row sum beside the largest logit, and a parabola of its fraction."""
    part, exponent = torch.frexp((lse - self.top).exp())
    fraction = 2 * part - 1
    return self.top + (exponent - 1 + fraction + fraction * (1 - fraction) / 3) / LOG2E


def with_the_top(self, o, z, v, lse):
    self.top = z.amax(-1)
    return o


DEFECTS = [
    ("K rounded to int8 steps of the largest of each tile", FP32, given(k=lambda p: in_int8(p.k))),
    ("a logarithm of the row sum by a polynomial of low degree", FP32, {"output": with_the_top, "lse": logarithm}),
    ("P rounded to bf16", FP32, softmax(p=bf16)),
    ("row sum of P rounded to bf16", FP32, softmax(summed=bf16)),
    ("polynomial of low degree", FP32, softmax(exp=quadratic)),
    ("the accumulator, rounded to bf16 after each tile", FP32, softmax(acc=bf16)),
    ("P truncated to bf16", FP32, softmax(p=cut)),
    ("dS truncated to bf16", CASE, gradients(ds=cut)),
    ("P rounded to bf16", CASE, gradients(p=bf16)),
    ("the accumulator, rounded to bf16 after each tile", CASE.replace("seq_k=7", "seq_k=60"), gradients(acc=bf16)),
    (
        "Q times log2(e), rounded to bf16",
        FP32,
        given(q=lambda p: (bf16(p.q.double() * LOG2E) / LOG2E).to(p.q.dtype)),
    ),
    ("logits times 1.00003", FP32, {"scale": lambda self, problem: problem.scale * 1.00003}),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("said", "text", "defect"),
    fast_one_in(3, (pytest.param(*x, id=f"{x[0]}-{n}") for n, x in enumerate(DEFECTS))),
)
def test_a_step_of_too_few_bits_is_said(said, text, defect):
    found = words(planted(**defect), text)
    assert found is not None
    assert found.name == ""
    assert said in found.sentence, found


def test_weights_that_are_cut_off_are_told_from_rounded_ones_in_the_dtype_of_the_case():
    text = FP32.replace("fp32", "bf16")
    subject = planted(**softmax(p=cut), form=lambda self, case: Form(block_n=16, key_order="ascending"))
    assert "P truncated to bf16" in words(subject, text).sentence


def test_a_form_that_would_allow_the_error_is_found():
    subject = planted(**softmax(summed=bf16))
    text = FP32.replace("fp32", "bf16")
    found = words(subject, text)
    assert found.form == "Form(row_sum='rounded', block_n=16)"


def test_a_wrong_width_of_tiles_is_warned_of():
    def form(self, case):
        return Form(block_n=64, key_order="ascending")

    found = words(planted(**softmax(p=bf16), form=form), FP32.replace("fp32", "bf16"))
    assert "block_n=64" in found.sentence
    assert "block_n=16" in found.form


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "defect",
    [
        {"scale": lambda self, problem: 2 * problem.scale},
        {"output": lambda self, o, z, v, lse: torch.cat([o[:, :, :1] * math.nan, o[:, :, 1:] * 1.001], 2)},
        {"scale": lambda self, problem: 1.05 * problem.scale},
        softmax(exp=lambda x: torch.exp(x) * (1 + 0.06 * torch.cos(2 * math.pi * LOG2E * x))),
    ],
    ids=["far off", "not finite", "logits 5 % off", "an exponential 6 % off"],
)
def test_nothing_is_said_of_errors_that_are_no_question_of_precision(defect):
    assert words(planted(**defect), FP32) is None


def test_nothing_is_said_of_noise_that_no_step_makes():
    def noisy(self, o, z, v, lse):
        return o * (1 + 2.0**-12 * torch.sin(1e6 * o))

    found = words(planted(output=noisy), FP32)
    assert found is None or "look like" not in found.sentence


def test_a_diagnosis_without_a_name_has_the_words_and_the_form():
    case = parse_case(FP32.replace("fp32", "bf16"))
    subject = planted(**softmax(summed=bf16))
    found = diagnose(subject, case, first_failure(subject, case), seconds=300)

    assert found.name == ""
    assert "the row sum of P rounded to bf16" in found.sentence
    assert found.form == "Form(row_sum='rounded', block_n=16)"


def test_what_the_forward_rounds_is_not_said_of_a_gradient_that_is_wrong_by_itself():
    def doubled(self, problem, forward):
        right = Plain.backward(self, problem, forward)
        return dataclasses.replace(right, dv=2 * right.dv)

    subject, case = planted(**softmax(summed=bf16), backward=doubled), parse_case(FP32.replace("backward=no", ""))
    failures = {verdict.output: verdict for verdict in judge_case(subject, case, Plan.only("accuracy", case)).failures}

    assert "row sum" in precision_words(subject, case, failures["o"], Clock().end(60)).sentence
    assert precision_words(subject, case, failures["dv"], Clock().end(60)) is None
