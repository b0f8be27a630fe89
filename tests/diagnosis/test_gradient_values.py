"""Of a backward it is read which steps are clamped, beside which numbers pairs or rows are left out, and which sums a loop multiplies."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect, no_mask
from flashverify.diagnosis.readings.backward.quantities import number_words, usual_between, usual_near
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.stepwise import assign, stepwise
from tests.fast_tier import thorough_in

CASE = "fv1 seq_q=37 seq_k=35 dim_qk=16 dim_v=16 dtype=fp32 "
GROUPS = "fv1 seq_q=9 seq_k=11 dim_qk=16 dim_v=16 dtype=fp32 heads_q=6 heads_kv=2 "
STEEP = "fv1 seq_q=25 seq_k=3 dim_qk=16 dim_v=16 dtype=fp32 scale=2 "
SINK = STEEP + "sink=yes heads_q=2 batch=2"


def _row(x):
    return x.unsqueeze(-1)


def _in_tiles(size, factor):
    """A sum over keys, tile by tile, multiplied after every one."""

    def change(s):
        total = torch.zeros_like(s.dq)
        for start in range(0, s.k.shape[2], size):
            at = slice(start, start + size)
            total = (total + s.scale * (s.inner[..., at] @ s.k[:, :, at])) * factor(s)
        s.dq = total / factor(s)

    return change


def _per_head(s):
    """A sum over the heads of a group that is halved after each but the last."""
    behind = s.group - 1 - torch.arange(s.q.shape[1]) % s.group
    s.dv = s.dv * (0.5**behind).view(1, -1, 1, 1)


def _of_low_rows(s):
    """The weights of the rows of an LSE below -2 are taken for 0."""
    s.weights = s.p * _row(s.lse >= -2)


PLANTED = {
    "a factor in the loop over keys": (
        CASE,
        {"at_heads": _in_tiles(16, lambda s: s.scale)},
        "dQ is P (dP - delta): the sum is multiplied by the scale after every tile of 16 keys",
    ),
    "a factor in the loop over heads": (
        GROUPS,
        {"at_heads": _per_head},
        "dV are P: the sum is multiplied by 1/2 after every query head of a group",
    ),
    "a clamped LSE": (
        STEEP,
        {"at_start": assign(lse=lambda s: s.lse.clamp(min=-2.5))},
        "the LSE that the weights take is at least -2.5 (-3.607 in base 2)",
    ),
    "a clipped dS": (
        CASE,
        {"at_slope": assign(inner=lambda s: s.inner.clamp(-0.02, 0.02))},
        "dQ and dK is P (dP - delta): dS has a magnitude of at most 0.02",
    ),
    "small weights are flushed": (
        CASE,
        {"at_ds": assign(ds=lambda s: torch.where(s.p < 2**-6, 0.0, s.ds))},
        "dQ and dK is 0 at pairs whose weight is below 0.0156",
    ),
    "large weights are left out": (
        STEEP,
        {"at_slope": assign(inner=lambda s: torch.where(s.p > 0.75, 0.0, s.inner))},
        "dQ and dK is 0 at pairs whose weight is above about 0.75",
    ),
    "rows of a low LSE are left out": (
        STEEP,
        {"at_weights": _of_low_rows},
        "dV are 0 in rows whose LSE is below about -2 ",
    ),
    "a sign of delta": (
        CASE,
        {"at_rows": assign(delta=lambda s: s.delta.clamp(min=0))},
        "delta as it is returned is 0 in rows whose delta is below 0",
    ),
    "a clipped gradient": (
        CASE,
        {"at_end": assign(dq=lambda s: s.dq.clamp(-0.04, 0.04))},
        "elements of dQ have a magnitude of at most 0.04: they are clipped",
    ),
    "small sinks are left out": (
        SINK,
        {"at_sink": assign(sink_weight=lambda s: torch.where(s.sink_weight < 0.01, 0.0, s.sink_weight))},
        "dsink leaves out what it sums in rows whose sink has a weight that is below about 0.01",
    ),
}


REPEATED = ("large weights are left out", "a clamped LSE", "a sign of delta", "rows of a low LSE are left out")
"""The other side of a number, and other steps that are clamped."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", thorough_in(REPEATED, PLANTED))
def test_a_number_in_the_code_is_said(name):
    text, methods, words = PLANTED[name]
    trials = Trials(stepwise(**methods), 60.0)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    said = " | ".join(gradients_in_effect(trials, scene))
    assert words in said, said
    assert "for a reason that was not found" not in said


@pytest.mark.thorough
def test_a_number_that_differs_from_case_to_case_is_not_said():
    limit = assign(inner=lambda s: s.inner.clamp(max=0.01 * (1 + s.q.shape[2] % 7)))
    trials = Trials(stepwise(at_slope=limit), 4.0)
    scene = trials.scene(parse_case(CASE))
    assert scene.failures
    assert not any("at most" in words for words in gradients_in_effect(trials, scene))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_in_tiles(16, lambda _s: 0.5), True),
        (assign(dq=lambda s: s.scale * (s.inner[..., :16] @ s.k[:, :, :16])), False),
    ],
)
def test_pairs_with_other_values_are_told_from_pairs_that_are_missing(change, expected):
    trials = Trials(stepwise(at_heads=change), 30.0)
    scene = trials.scene(parse_case(CASE))
    assert no_mask(trials, scene) is expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.00093, 0.00104, 0.001), (-0.3, 0.2, 0.0), (-2.2, -1.9, -2.0), (0.61, 0.78, 0.7), (11.0, 13.0, 12.0)],
)
def test_a_number_is_one_that_a_person_would_write(low, high, expected):
    found = next(usual_between(low, high, logarithm=False))

    assert found == pytest.approx(expected)
    assert low < found <= high


def test_a_logarithm_may_be_round_in_base_2():
    assert number_words(usual_near(-87.3365, 0.001, logarithm=True)[0], logarithm=True) == "-87.34 (-126 in base 2)"
