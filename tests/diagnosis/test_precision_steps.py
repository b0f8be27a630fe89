"""Defects of precision in one kernel or one output, and small defects of another kind, of which no sentence of precision is said."""

import dataclasses
import math

import pytest
import torch

import flashverify.diagnosis.diagnose as diagnosing
from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.diagnose import diagnose
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.precision.exponential import exponential_words
from flashverify.diagnosis.precision.fitting import told
from flashverify.diagnosis.precision.forms import declaring
from flashverify.numerics import Form
from tests.diagnosis.mask_defects import given
from tests.diagnosis.planted import Plain
from tests.diagnosis.stepwise import stepwise
from tests.diagnosis.test_diagnosis import CASE, FORWARD, planted
from tests.diagnosis.test_precision import bf16, exact, quadratic, softmax, words
from tests.fast_tier import fast_one_in

FP32 = FORWARD.replace("seq_k=7", "seq_k=40") + "regime=normal "
LN2 = math.log(2.0)
BIAS = CASE.replace("fv1 ", "fv1 heads_q=2 heads_kv=2 ") + "bias=shared "


def fp16(x):
    return x.to(torch.float16).double()


def forward(*, alpha=exact, undivided=exact, divisor=exact, part=exact, exponent=exact, merged=exact, rows=1):
    """`Plain.output` and its LSE by a running softmax over tiles of 16 keys, or by pieces of 32 keys that are merged."""

    def output(self, o, z, v, lse):
        pieces = [self.walk(z, v)]
        if (part, merged) != (exact, exact):
            pieces = [self.walk(*x) for x in zip(z.split(32, -1), v.split(32, -2), strict=True)]
        sums = [top + total.log() for top, total, _ in pieces]
        whole = torch.stack(sums).logsumexp(0)
        self.found = whole.squeeze(-1)
        parts = [undivided(acc) / divisor(total) for _, total, acc in pieces]
        top = torch.stack(sums).amax(0)
        weights = [(LN2 * merged((lse - top) / LN2)).exp() / (whole - top).exp() for lse in sums]
        return sum(weight * part(o) for weight, o in zip(weights, parts, strict=True))

    def walk(self, z, v):
        top = torch.full_like(z[..., :1], -torch.inf)
        total, acc = torch.zeros_like(top), 0.0
        for at in range(0, z.shape[-1], 16):
            tile = z[..., at : at + 16]
            new = torch.maximum(top, tile.amax(-1, keepdim=True))
            if rows > 1:
                new = torch.cat([x.amax(2, keepdim=True).expand_as(x) for x in new.split(rows, 2)], 2)
            factor, w = (top - new).exp(), (LN2 * exponent((tile - new) / LN2)).exp()
            total = total * factor + w.sum(-1, keepdim=True)
            acc = acc * alpha(factor) + w.to(self.weights).double() @ v[..., at : at + 16, :]
            top = new
        return top, total, acc

    made = {"output": output, "walk": walk, "lse": lambda self, lse, _: self.found, "weights": torch.float64}
    if rows > 1:
        made |= {"form": lambda self, case: Form(block_n=16, key_order="ascending"), "weights": torch.bfloat16}
    return made


def backward(*, dp=exact, p=exact, product=exact, member=exact, summed=exact, names=("dq", "dk", "dv", "dbias")):
    """A backward whose gradients `names` are made with roundings, the others without."""

    def rounded(self, problem, found):
        q, k, v, _, z, see, _, group = found.saved
        do = problem.do.double()
        w = torch.where(see, (z - found.lse.double().unsqueeze(-1)).exp(), 0.0)
        delta = product(do * found.o.double()).sum(-1)
        ds = p(w) * (dp(do @ v.mT) - delta.unsqueeze(-1))
        new = {
            "dq": problem.scale * ds @ k,
            "dk": self.group_sum(member(problem.scale * ds.mT @ q), group),
            "dv": self.group_sum(member(w.mT @ do), group),
        }
        if problem.bias is not None:
            new["dbias"] = summed(ds).sum((0, 1), keepdim=True)
        right = Plain.backward(self, problem, found)
        dtype = problem.q.dtype
        return dataclasses.replace(right, **{name: x.to(dtype) for name, x in new.items() if name in names})

    return {"backward": rounded}


DEFECTS = [
    ("O look like the factor that rescales the accumulator of O, rounded to bf16", FP32, forward(alpha=bf16)),
    (
        "O and LSE look like logits minus what is subtracted from them, in base 2, rounded to fp16",
        FP32,
        forward(exponent=fp16),
    ),
    ("dK look like dP rounded to bf16", CASE, backward(dp=bf16, names=("dk",))),
    ("dbias look like dS, rounded to bf16 before it is summed", BIAS, backward(summed=bf16, names=("dbias",))),
    ("O look like O before its division, rounded to bf16", FP32, forward(undivided=bf16)),
    ("O look like the row sum that O is divided by, rounded to bf16", FP32, forward(divisor=bf16)),
    (
        "O look like the LSE of each piece of 32 keys minus the largest, in base 2, rounded to bf16",
        FP32.replace("k=40", "k=60"),
        forward(merged=bf16),
    ),
    ("O look like O of each piece of 32 keys, rounded to bf16", FP32.replace("k=40", "k=60"), forward(part=bf16)),
    ("dQ look like P rounded to bf16, where dS is made from it", CASE, backward(p=bf16, names=("dq",))),
    ("dQ look like the products that delta sums, rounded to bf16", CASE, backward(product=bf16, names=("dq",))),
    ("the gradient of each query head of a group, rounded to bf16", CASE, backward(member=bf16, names=("dk", "dv"))),
    ("one running maximum for each tile of 32 rows", FP32.replace("fp32", "bf16"), forward(rows=32)),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("said", "text", "defect"),
    fast_one_in(3, (pytest.param(*x, id=f"{x[0]}-{n}") for n, x in enumerate(DEFECTS))),
)
def test_a_step_of_one_kernel_is_said(said, text, defect):
    found = words(planted(**defect), text)
    assert found is not None
    assert said in found.sentence, found


def test_what_is_right_in_fp32_is_held_against_models_of_rounding_before_any_hypothesis(monkeypatch):
    rounded, right = planted(**softmax(p=bf16)), Plain()

    def in_fp16(self, problem):
        return (rounded if problem.q.dtype == torch.float16 else right).forward(problem)

    monkeypatch.setattr(diagnosing, "named", lambda *_: pytest.fail("a hypothesis was asked about first"))
    subject, case = planted(forward=in_fp16), parse_case(FP32.replace("fp32", "fp16"))
    failures = judge_case(subject, case, Plan.only("accuracy", case)).failures
    found = diagnose(subject, case, failures[0], seconds=300)

    assert "O look like P rounded to bf16" in found.sentence
    assert found.sentence.endswith("The same case is right in fp32: the defect is one of fp16.")


def test_a_form_declares_the_rounding_of_the_outputs_that_are_wrong():
    def fields(*names):
        return [set(change) for change in declaring("accumulator", "rounded to bf16", "bf16", frozenset(names))]

    assert fields("o") == [{"o_accum"}]
    assert fields("dv") == 2 * [{"grad_accum", "grad_accum_of"}]
    assert declaring("dp", "rounded to fp16", "bf16", frozenset({"dk"})) == ()
    assert declaring("dp", "rounded to bf16", "bf16", frozenset({"dk"})) == ({"dp_dtype": "input"},)


def test_an_error_of_a_single_element_is_no_evidence():
    def one(self, o, z, v, lse):
        o = o.clone()
        o[0, 0, 0, 0] *= 1.01
        return o

    case, names = parse_case(FP32), frozenset({"o"})
    assert not told([look(planted(output=one), case)], names)
    assert told([look(planted(), case)], names)


def test_a_right_run_contradicts_an_exponential():
    names = frozenset({"o", "lse"})
    cases = [parse_case(FP32 + f"seed={seed} ") for seed in (1, 2, 3)]
    poor = [look(planted(**softmax(exp=quadratic)), case) for case in cases[:2]]

    assert "polynomial of low degree" in exponential_words(poor, (), names)
    assert exponential_words(poor, (look(planted(), cases[2]),), names) == ""


def _quadratic_weights(s):
    s.p = torch.where(s.see, quadratic(s.z - s.lse.unsqueeze(-1)), 0.0)
    s.weights = s.p


def test_an_exponential_of_the_backward_is_a_polynomial():
    cases = [parse_case(f"fv1 seq_q=37 seq_k=35 dim_qk=16 dim_v=16 dtype=fp32 seed={seed}") for seed in (1, 2, 3)]
    poor = [look(stepwise(at_weights=_quadratic_weights), case) for case in cases[:2]]

    for names in (frozenset({"dq"}), frozenset({"dk", "dv"})):
        assert names <= poor[0].failures.keys()
        assert "polynomial of low degree" in exponential_words(poor, (), names)
        assert exponential_words(poor, (look(stepwise(), cases[2]),), names) == ""


def far_tanh(self, z, cap):
    x = z / cap
    return cap * torch.where(x.abs() >= 2, torch.sign(x), torch.tanh(x))


def late_slope(self, z, cap):
    return 1 - torch.tanh(1.0001 * z / cap) ** 2


def light_key(self, o, z, v, lse):
    w = (z - lse.unsqueeze(-1)).exp()
    w[..., 3] *= 1.001
    return w @ v


@pytest.mark.parametrize(
    ("text", "defect"),
    [
        (FORWARD + "softcap=848 regime=near-ties-1e4 ", {"cap": far_tanh}),
        pytest.param(CASE + "softcap=1 ", {"cap_slope": late_slope}, marks=pytest.mark.slow),
        pytest.param(FP32, {"output": light_key}, marks=pytest.mark.slow),
    ],
    ids=["tanh ends at two", "the slope of another argument", "a key with another weight"],
)
def test_no_rounding_and_no_form_is_said_of_a_small_error_of_another_kind(text, defect):
    found = words(planted(**defect), text)
    assert found is None, found


def test_a_factor_of_a_step_of_the_backward_is_said():
    def scaled(self, problem, found):
        q, k, v, raw, z, *rest = found.saved
        changed = dataclasses.replace(found, saved=(q, k, v, raw, z * 1.00003, *rest))
        wrong, right = (Plain.backward(self, problem, x) for x in (changed, found))
        return dataclasses.replace(right, dq=wrong.dq)

    found = words(planted(backward=scaled), CASE)
    assert "dQ look like logits times 1.00003 " in found.sentence


@pytest.mark.parametrize(("which", "said"), [(("q", "k"), "Q and K"), (("k",), "K")])
def test_channels_of_k_that_v_has_not_are_told_from_all_of_them(which, said):
    def rotary(name):
        return lambda p: torch.cat([(x := getattr(p, name))[..., :8], bf16(x[..., 8:].double()).to(x.dtype)], -1)

    subject = planted(**given(**{name: rotary(name) for name in which}))

    found = words(subject, FP32.replace("dim_qk=8", "dim_qk=24"))

    assert found is not None
    assert f"the channels of {said} beyond those of V, rounded to bf16, in the logits" in found.sentence
