"""Wrong semantics of the online softmax, the LSE, the denominator, masks, operands and sums: each expects what its defect returns."""

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.related_cases import grown
from tests.diagnosis.base_defects import CASE, DEFECTS, MANY
from tests.diagnosis.explaining import explained
from tests.diagnosis.planted import Plain, planted
from tests.diagnosis.test_diagnosis import named
from tests.fast_tier import fast_one_in

NAMED = ("rescaling-missing", "sink-not-asked-for", "cached-prefix-tail-dropped")
"""Those that are put to the whole diagnosis as well."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "text", "defect"),
    fast_one_in(3, (pytest.param(*x, id=f"{x[0]}-{n}") for n, x in enumerate(DEFECTS))),
)
def test_a_planted_defect_is_what_its_semantics_expects(name, text, defect):
    subject = defect() if isinstance(defect, type) else planted(**defect)
    case = parse_case(text)
    larger = (grown(case, rows, keys, regime=case.values.regime, seed=rows) for rows, keys in ((3, 20), (34, 66)))
    scenes = [look(subject, each) for each in (case, *larger, grown(case, 18, 34, regime="normal", seed=5))]
    assert scenes[0].failing(), "the planted defect does not show"
    clearly = [explained(name, scene) for scene in scenes]
    assert any(clearly)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "defect"), fast_one_in(1, (pytest.param(*x) for x in DEFECTS if x[0] in NAMED), kept=len(NAMED))
)
def test_a_planted_defect_is_named(name, text, defect):
    assert named(planted(**defect), text).name == name


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "text", [CASE, MANY + "causal=top-left klen=3,7", CASE.replace("seq_k=7", "seq_k=0"), CASE + "bias=full softcap=1"]
)
def test_every_semantics_expects_outputs_of_the_right_shape_where_nothing_is_wrong(text):
    scene = look(Plain(), parse_case(text))
    assert not scene.failing()
    whole = frozenset(scene.outputs)
    for semantics in SEMANTICS:
        for each in semantics.build(scene):
            for name, expected in scene.expect(each, whole & frozenset(semantics.outputs)).items():
                assert expected.holds(scene.outputs[name]).shape == scene.outputs[name].shape, semantics.name
