"""Wrong semantics of parts of the backward: some members of a group, a sink that is left out, a derivative of the softcap too early."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.hypotheses.cap_gradient import CAP_GRADIENT
from flashverify.diagnosis.observe import look
from tests.diagnosis.gradient_defects import CAPPED, CASE, GROUPS, at_heads, planted_gradient
from tests.diagnosis.stepwise import assign, stepwise
from tests.diagnosis.test_bases import explained


def first_members(count):
    return at_heads(lambda x, group: x * (torch.arange(x.shape[1]) % group < count(group)).view(-1, 1, 1))


def of_keys_alone(s):
    s.p = s.weights = s.p / s.p.sum(-1, keepdim=True).clamp(min=1e-30)


def slope(s):
    return 1 - torch.tanh(s.raw / s.cap) ** 2


DEFECTS = [
    (
        "softcap-slope-before-bias-gradient",
        CAPPED + "bias=full",
        {
            "at_slope": assign(inner=lambda s: s.ds * slope(s) ** 2),
            "at_end": assign(dbias=lambda s: s.dbias * slope(s)),
        },
    ),
    ("backward-weights-without-sink", CASE + "sink=yes", {"at_weights": of_keys_alone}),
    ("group-some-members-only", GROUPS, first_members(lambda _group: 2)),
    ("group-rest-lost", CASE + "heads_q=7 heads_kv=1", first_members(lambda group: group // 2 * 2)),
]


@pytest.mark.parametrize(("name", "text", "defect"), [pytest.param(*x, id=x[0]) for x in DEFECTS])
def test_a_planted_defect_is_what_its_semantics_expects(name, text, defect):
    scene = look(planted_gradient(defect), parse_case(text))

    assert scene.failing(), "the planted defect does not show"
    assert explained(name, scene)


def test_a_derivative_near_0_hides_no_rounding_from_a_wrong_one():
    scene = look(stepwise(), parse_case(CAPPED + "regime=logits-1e3"))
    semantics = next(each for each in CAP_GRADIENT if each.name == "softcap-slope-of-capped")

    (found, *_) = semantics.build(scene)
    dq = scene.expect(found, frozenset({"dq"}))["dq"]

    assert dq.holds(dq.value * (1 + 2.0**-12)).all()
    assert not dq.holds(dq.value * (1 + 2.0**-1)).all()
