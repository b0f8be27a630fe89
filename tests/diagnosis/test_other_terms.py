"""What delta, dS, the derivative of a softcap and the operands of a product are made of, where that is something else.

Each case has a defect in every output that it names, so that several are read at once.
"""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.readings.backward.in_effect import gradients_in_effect
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.stepwise import assign, stepwise

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=16 dim_v=16 dtype=fp32 "
LOG2E = 1.4426950408889634


def _row(x):
    return x.unsqueeze(-1)


def _slope(s):
    return 1 - torch.tanh(s.raw / s.cap) ** 2


def _next_tile(x):
    return torch.cat([x[:, :, 16:], torch.zeros_like(x[:, :, :16])], 2)[:, :, : x.shape[2]]


def _last_whole_twice(s):
    """The last whole tile of 16 keys, where some keys are left behind it."""
    keys = s.k.shape[2]
    tile = torch.arange(keys) // 16
    twice = (tile == keys // 16 - 1) & (keys % 16 != 0)
    return s.inner * (1 + twice.double())


PLANTED = {
    "delta of O and O": (
        CASE,
        {"at_rows": assign(delta=lambda s: (s.o * s.o).sum(-1))},
        ("dQ and dK is P (dP - delta'): delta is rowsum(O * O)", "Delta as it is returned: delta is rowsum(O * O)"),
    ),
    "a slope in base 2, a scale of its own": (
        CASE + "softcap=2 scale=0.4 dlse=yes",
        {
            "at_heads": assign(
                dq=lambda s: s.scale * (s.ds * (1 - (LOG2E * torch.tanh(s.raw / s.cap)) ** 2)) @ s.k,
                dk=lambda s: s.dk * (16**-0.5 / s.scale),
            )
        },
        (
            "dS in effect in dQ is P (dP - delta + dLSE): the derivative of the softcap is taken as 1 - log2(e)^2 * tanh^2",
            "dK is 1 / (scale * sqrt(",
        ),
    ),
    "tiles, weights of their own": (
        CASE.replace("seq_q=5 seq_k=7", "seq_q=40 seq_k=40") + "sink=yes",
        {
            "at_heads": assign(
                dq=lambda s: s.scale * (_last_whole_twice(s) @ s.k),
                dk=lambda s: s.scale * (s.inner.mT @ _next_tile(s.q)),
            ),
            "at_sink": assign(sink_weight=lambda s: s.sink_weight / (1 + s.sink_weight)),
        },
        (
            "dS in effect in dQ is 2 * P (dP - delta) in the last whole tile of 16 keys, where one that needs a mask follows,",
            "the product takes Q of the row at that place of the tile of 16 behind",
            "dsink has w / (1 + w) in place of w",
        ),
    ),
    "the derivative of a softcap in some terms": (
        CASE + "softcap=2 bias=full",
        {
            "at_heads": assign(
                dq=lambda s: s.scale * ((s.p * (_slope(s) * s.dp - _row(s.delta))) @ s.k),
                dk=lambda s: s.scale * ((s.p * (s.dp - 2 * _slope(s) * _row(s.delta))).mT @ s.q),
            ),
            "at_slope": assign(ds=lambda s: s.p * (_slope(s) * s.dp - _row(s.delta))),
        },
        (
            "dS in effect in dQ is P cap' dP - P delta: delta is not multiplied by cap', the derivative of the softcap",
            "dS in effect in dK is P dP - (2) P cap' delta: dP is not multiplied by cap'",
            "dS in effect in dbias is P cap' dP - P delta: dP is multiplied by cap'",
        ),
    ),
    "the derivative of a softcap in the weights of dV": (
        CASE + "softcap=2 dropout=0.3",
        {"at_heads": assign(dv=lambda s: (s.weights * s.keep * _slope(s)).mT @ s.do)},
        ("The weights in effect in dV are P cap': the weights are multiplied by cap', the derivative of the softcap",),
    ),
    "delta weighed once more": (
        CASE,
        {"at_ds": assign(ds=lambda s: s.weights * s.dp - s.weights**2 * _row(s.delta))},
        ("dQ and dK is P dP - P^2 delta: delta is multiplied by P^2, not by P",),
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_effect_is_said(name):
    text, methods, words = PLANTED[name]
    trials = Trials(stepwise(**methods), 60.0)
    scene = trials.scene(parse_case(text))
    assert scene.failures, "the planted defect does not show"
    said = " | ".join(gradients_in_effect(trials, scene))
    assert all(part in said for part in words), said
