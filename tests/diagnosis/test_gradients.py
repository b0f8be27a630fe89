"""Every defect of the backward is what its semantics expects, and is named so."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.related_cases import grown
from flashverify.outputs import BACKWARD
from tests.diagnosis.explaining import explained
from tests.diagnosis.gradient_defects import CASE, DEFECTS, planted_gradient
from tests.diagnosis.stepwise import stepwise
from tests.diagnosis.test_diagnosis import named
from tests.fast_tier import fast_one_in

REFUTED = "dbias-mean"
"""It is put to the whole diagnosis below, where a name is refuted that explains it too."""
IDS = [pytest.param(*x, id=f"{x[0]}-{n}") for n, x in enumerate(DEFECTS)]
RIGHT = (
    CASE,
    CASE + "softcap=2 causal=top-left bias=full alibi=yes",
    CASE + "dropout=0.5 sink=yes heads_q=4 heads_kv=2 batch=2 dlse=yes bias=shared",
    CASE + "klen=3 qlen=4 padding=dirt",
    CASE.replace("fp32", "bf16") + "causal=bottom-right",
)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "text", "defect"), fast_one_in(4, IDS))
def test_a_planted_defect_is_what_its_semantics_expects(name, text, defect):
    subject, case = planted_gradient(defect), parse_case(text)
    larger = (grown(case, rows, keys, regime=case.values.regime, seed=rows) for rows, keys in ((3, 20), (34, 66)))
    scenes = [look(subject, each) for each in (case, *larger, grown(case, 18, 34, regime="normal", seed=5))]
    assert scenes[0].failing(), "the planted defect does not show"
    clearly = [explained(name, scene) for scene in scenes]
    assert any(clearly)


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "text", "defect"), fast_one_in(1, (x for x in IDS[::8] if x.values[0] != REFUTED), kept=6)
)  # a whole diagnosis takes seconds
def test_a_planted_defect_is_named(name, text, defect):
    found = named(planted_gradient(defect), text, check="nonfinite" if "overflow" in name else "accuracy")
    assert name in (found.name, *found.also), found


@pytest.mark.parametrize("text", RIGHT)
def test_steps_that_nothing_changes_are_what_is_declared(text):
    scene = look(stepwise(), parse_case(text))
    assert not scene.failing()
    names = frozenset(BACKWARD) & scene.outputs.keys()
    found, declared = scene.expect(Alternative(steps=lambda s: s), names), scene.declared(BACKWARD)
    assert names == found.keys()
    for name in names:
        assert torch.equal(found[name].value, declared[name].value)
        torch.testing.assert_close(found[name].total, declared[name].total)


@pytest.mark.parametrize("text", RIGHT)
def test_the_steps_give_the_values_of_the_oracle(text):
    """They are computed apart from it."""
    scene = look(stepwise(), parse_case(text))
    steps = steps_of(scene.inputs, scene.o, scene.lse)
    dq = steps.scale * ((steps.formula() * steps.slope) @ steps.k)
    assert bool(scene.declared(BACKWARD)["dq"].holds(dq).all())


@pytest.mark.slow
def test_a_defect_that_is_another_one_on_half_of_the_cases_nearby_gets_no_name():
    plain = parse_case(CASE)

    def other(s):
        case = s.problem.case
        same = (case.mask, case.logits, case.storage, case.dtype) == (plain.mask, plain.logits, plain.storage, "fp32")
        s.dq = s.dq * (2 if same and case.dim_qk < 64 and 64 not in (case.seq_q, case.seq_k) else 3)

    found = named(planted_gradient({"at_end": other}), CASE, seconds=5)
    assert (found.name, found.also) == ("", ()), found


@pytest.mark.slow
@pytest.mark.thorough
def test_a_name_that_a_case_without_the_feature_refutes_does_not_stand_beside_the_right_one():
    """Over two sequences a mean is half of a sum; over one it is the sum."""
    (text, defect) = next((text, defect) for name, text, defect in DEFECTS if name == REFUTED)
    found = named(planted_gradient(defect), text)
    assert (found.name, found.also) == (REFUTED, ())
