"""A derivative of a softcap that is left out where it is almost 1 is not said to be rounded; and what cases with more parts may not refute."""

import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.precision import precision_words
from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect
from flashverify.diagnosis.trials import Trials
from flashverify.judge.verdict import Status, Verdict
from tests.diagnosis.stepwise import assign, stepwise

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=16 dim_v=16 dtype=fp32 "


def _words(change, options):
    case = parse_case(CASE + options)
    verdict = Verdict("accuracy", Status.FAIL, output="dq", error="bound")
    found = precision_words(stepwise(at_slope=change), case, verdict, Clock().end(60.0))
    return "" if found is None else found.sentence


def test_a_slope_that_is_missing_is_not_said_to_be_rounded():
    assert "the derivative of the softcap" not in _words(assign(inner=lambda s: s.ds), "softcap=100")


def test_a_slope_that_is_rounded_is_said_to_be():
    def rounded(s):
        slope = 1 - torch.tanh(s.raw / s.cap) ** 2
        s.inner = s.ds * slope.half().double()

    assert "the derivative of the softcap, rounded to fp16" in _words(rounded, "softcap=2")


def test_a_case_with_more_parts_may_be_wrong_in_another_way():
    def earlier(s):
        """The slopes of the next head, and where there are sinks no LSE besides."""
        slopes = s.problem.slopes.double().view(1, -1, 1, 1)
        s.weights = s.p * (-0.5 * slopes).exp() * (1.0 if s.sink is None else 3.0)

    subject = stepwise(at_weights=earlier)
    trials = Trials(subject, 60.0)
    wider = trials.scene(parse_case(CASE + "heads_q=4 heads_kv=2 alibi=yes sink=yes"))
    scene = trials.scene(parse_case(CASE + "heads_q=4 heads_kv=2 alibi=yes"))
    assert wider.failures
    said = " | ".join(gradients_in_effect(trials, scene))
    assert "exp(-0.5 * the slope of ALiBi); cases that have more parts are wrong in another way as well" in said
