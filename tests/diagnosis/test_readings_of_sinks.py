"""Sinks that are another function of the declared ones, read off the row sums."""

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain

TEXT = "fv1 heads_q=6 heads_kv=3 seq_q=14 seq_k=33 dim_qk=16 dim_v=16 dtype=fp32 backward=no sink=yes "


class Capped(Plain):
    """The sink is capped as a logit is."""

    def cap(self, z, cap):
        self.given = cap
        return super().cap(z, cap)

    def sinks(self, sink):
        return super().cap(sink.double(), self.given)


class MeanOfAGroup(Plain):
    """The heads of a group have one sink."""

    def kv_head(self, h, group, heads_kv):
        self.group = group
        return super().kv_head(h, group, heads_kv)

    def sinks(self, sink):
        return sink.view(-1, self.group).mean(1).repeat_interleave(self.group)


class Limited(Plain):
    """No sink is below -0.5."""

    def sinks(self, sink):
        return sink.clamp(min=-0.5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("subject", "more", "words"),
    [
        (Capped(), "softcap=2", "under the softcap, as a logit is"),
        pytest.param(MeanOfAGroup(), "", "the mean of the heads of its group", marks=pytest.mark.thorough),
        pytest.param(Limited(), "", "the declared one, at least -0.5", marks=pytest.mark.thorough),
    ],
    ids=["capped", "mean", "limited"],
)
def test_a_formula_of_the_sinks_is_said(subject, more, words):
    trials = Trials(subject, 300)
    scene = trials.scene(parse_case(TEXT + more))
    assert scene.failures

    assert f"The sink in effect is {words}" in readings(trials, scene, "o").sentences
