"""What the backward computes is read pair by pair and said in words, and nothing that a fresh case contradicts."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.readings.backward.fitting import Reading
from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect
from flashverify.diagnosis.readings.backward.probe import ask, asked_cases
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.stepwise import assign, stepwise
from tests.fast_tier import thorough_in

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=16 dim_v=16 dtype=fp32 "
GROUPS = CASE + "heads_q=4 heads_kv=2 "


def _row(x):
    return x.unsqueeze(-1)


def _from_row(size):
    def change(s):
        late = torch.arange(s.delta.shape[-1]) >= size
        s.delta = torch.where(late, 0.0, s.delta)

    return change


def _first_of_group(s):
    kept = (torch.arange(s.q.shape[1]) % s.group == 0).view(1, -1, 1, 1)
    s.dk, s.dv = s.dk * kept, s.dv * kept


PLANTED = {
    "delta is left out": (CASE, {"at_rows": assign(delta=lambda s: s.delta * 0)}, ("P dP: delta is missing",)),
    "a number that has no name": (
        CASE + "causal=top-left",
        {"at_rows": assign(delta=lambda s: s.delta * 0.625)},
        ("delta is multiplied by 0.625",),
    ),
    "the slope is squared": (
        CASE + "softcap=2",
        {"at_slope": assign(inner=lambda s: s.inner * (1 - torch.tanh(s.raw / s.cap) ** 2))},
        ("the derivative of the softcap is squared",),
    ),
    "the slope at the capped logit": (
        CASE + "softcap=2",
        {"at_slope": assign(inner=lambda s: s.ds * (1 - torch.tanh(torch.tanh(s.raw / s.cap)) ** 2))},
        ("the derivative of the softcap is taken at the capped logit",),
    ),
    "the LSE of another head": (
        GROUPS,
        {"at_weights": assign(weights=lambda s: (s.z - _row(s.lse.roll(-1, 1))).exp())},
        ("dV are P': the weights take the LSE of the next query head",),
    ),
    "no sink in the weights": (
        CASE + "sink=yes",
        {"at_weights": assign(weights=lambda s: (s.z - _row(s.z.logsumexp(-1))).exp())},
        ("dV are P': the weights of the backward leave out the sink",),
    ),
    "another logit": (
        CASE + "bias=full",
        {"at_weights": assign(weights=lambda s: (s.z + s.raw - _row(s.lse)).exp())},
        ("the product of Q and K counts 2 times in them",),
    ),
    "dLSE is left out": (CASE + "dlse=yes", {"at_rows": assign(dlse=lambda s: s.dlse * 0)}, ("dLSE is missing",)),
    "dP is not scaled": (
        CASE + "dropout=0.5",
        {
            "at_rows": assign(
                dp=lambda s: s.dp * 0.5 if s.problem.case.dropout == 0.5 else s.dp * (1 - s.problem.case.dropout)
            )
        },
        ("dP is dropped but not scaled by 1 / (1 - p)",),
    ),
    "one head of a group": (
        GROUPS,
        {"at_heads": _first_of_group},
        ("dK is 0 in query heads of each group behind the first one", "dV are 0 in query heads of each group behind"),
    ),
    "K of the first kv head": (
        GROUPS,
        {"at_slope": assign(k=lambda s: s.k[:, :1].expand(s.k.shape))},
        ("the product takes K of the first kv head",),
    ),
    "late rows": (CASE.replace("seq_q=5", "seq_q=70"), {"at_rows": _from_row(64)}, ("rows", "delta is missing")),
    "dQ of the next row": (
        CASE,
        {"at_end": assign(dq=lambda s: s.dq.roll(-1, 2))},
        ("dQ of row i is the right one of row i + 1, in a ring",),
    ),
    "a mean over the batch": (
        CASE + "sink=yes batch=2",
        {"at_end": assign(dsink=lambda s: s.dsink / s.problem.case.batch)},
        ("dsink is the mean over the sequences, not the sum",),
    ),
    "delta of other rows": (
        CASE,
        {"at_rows": assign(delta=lambda s: s.delta.roll(-1, 2))},
        ("dQ and dK is P (dP - delta'): delta is that of row i + 1, in a ring", "Delta as it is returned: "),
    ),
    "hidden pairs": (
        CASE + "causal=top-left",
        {"at_weights": assign(weights=lambda s: (s.z_all - _row(s.lse)).exp())},
        ("hidden pairs keep their weight",),
    ),
}


REPEATED = (
    "delta is left out",
    "the slope is squared",
    "dLSE is left out",
    "delta of other rows",
    "one head of a group",
)
"""Words of which test_gradient_sums.py, test_gradient_places.py and test_gradient_families.py have others at narrower places."""


def _with_all_logits(s):
    s.z_all = s.raw


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", thorough_in(REPEATED, PLANTED))
def test_a_planted_effect_is_said(name):
    text, methods, words = PLANTED[name]
    subject = stepwise(at_start=_with_all_logits, **methods)
    trials = Trials(subject, 60.0)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    said = " | ".join(gradients_in_effect(trials, scene))
    assert all(part in said for part in words), said
    assert "for a reason that was not found" not in said


@pytest.mark.parametrize(
    "text",
    [
        CASE,
        GROUPS + "softcap=2 bias=full alibi=yes causal=bottom-right",
        CASE + "dropout=0.5 sink=yes dlse=yes",
        CASE.replace("fp32", "bf16") + "klen=6 qlen=4 padding=nan",
        CASE.replace("fp32", "fp16") + "relative_bias=8,16",
    ],
)
def test_everything_that_is_read_of_a_right_kernel_is_as_declared(text):
    subject, case = stepwise(), parse_case(text)
    scene = look(subject, case)
    cases = list(asked_cases(subject, case))
    assert cases[-1].dim_qk == case.dim_qk
    for asked in cases:
        effect = ask(subject, scene, asked, lambda: True)
        assert {"dq", "dk", "dv"} <= effect.read.keys()
        for name in effect.read:
            reading = Reading(effect, name)
            assert bool(reading.asked.any())
            assert not bool(reading.wrong.any()), name
    assert gradients_in_effect(Trials(subject, 60.0), scene) == ()


@pytest.mark.parametrize(
    ("text", "change"),
    [
        pytest.param(
            CASE,
            lambda s: s.dq * (1 + 1 / (1 + s.problem.case.seq_q * s.problem.case.seq_k)),
            marks=pytest.mark.thorough,
        ),
        (CASE, lambda s: s.dq * (2 if s.problem.case.seq_q < 8 else 3)),
    ],
)
def test_what_fits_one_case_and_no_fresh_one_is_not_said(text, change):
    subject = stepwise(at_end=assign(dq=change))
    trials = Trials(subject, 4.0)
    scene = trials.scene(parse_case(text))
    assert scene.failures
    assert gradients_in_effect(trials, scene) == ()


def test_without_time_nothing_is_asked():
    subject = stepwise(at_rows=assign(delta=lambda s: s.delta * 0))
    scene = look(subject, parse_case(CASE))
    calls = []
    forward = subject.forward
    subject.forward = lambda problem: calls.append(1) or forward(problem)
    assert gradients_in_effect(Trials(subject, 0.0), scene) == ()
    assert not calls
