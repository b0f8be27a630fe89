"""Wrong semantics of the forward: each expects what its defect returns, and no other one explains it on all cases too."""

import pytest

from flashverify.case.text import parse_case
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.families import canonical
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.related_cases import grown
from tests.diagnosis import draw_defects, local_defects, mask_defects, option_defects, tile_defects, wiring_defects
from tests.diagnosis.planted import planted
from tests.diagnosis.test_diagnosis import named
from tests.fast_tier import fast_one_in

DEFECTS = [
    *mask_defects.DEFECTS,
    *wiring_defects.DEFECTS,
    *draw_defects.DEFECTS,
    *option_defects.DEFECTS,
    *local_defects.DEFECTS,
    *draw_defects.RESHAPED,
    *tile_defects.DEFECTS,
]
SHARED = {
    "diagonal-shift-twice": {
        "causal-ignored",
        "causal-several-keys-more",
        "diagonal-of-last-row-of-tile",
        "edge-tile-unmasked",
    },
    "scale-of-all-heads": {"scale-of-padded-dim"},
    "page-first": {"pages-of-another-size"},
    "window-left-of-last-row": {"diagonal-of-last-row-of-tile"},
    "last-page-missing": {
        "last-key-tile-skipped",
        "odd-key-tile-lost",
        "partial-last-page-missing",
        "second-key-tiles-skipped",
        "tail-keys-skipped",
    },
    "partial-last-page-missing": {
        "last-key-tile-skipped",
        "last-page-missing",
        "odd-key-tile-lost",
        "second-key-tiles-skipped",
        "tail-keys-skipped",
    },
    "page-table-of-first-sequence": {"batch-first", "kv-batch-head-exchanged"},
}
"""Names that explain a defect on every case tried here, and are told from its own by the whole diagnosis."""
NAMED = (
    "partial-last-page-missing",
    "window-sides-exchanged",
    "bias-of-another-row",
    "packed-one-key-early",
    "lse-of-another-head",
)
"""Those that are put to the whole diagnosis as well."""
_RIVALS = 16
"""One defect in so many is put to every other semantics, which takes a second."""


def made(defect):
    return defect() if isinstance(defect, type) else planted(**defect)


def scenes(subject, text):
    case = parse_case(text)
    first = look(subject, case)
    assert first.failing(), "the planted defect does not show"
    yield first
    sizes = ((3, 20), (34, 66)) if case.storage.page_size is None else ((1, 20), (2, 66))
    for rows, keys in sizes:
        larger = grown(case, rows, keys, regime="normal", seed=rows)
        if larger is not None and subject.supports.refusal(larger) is None:
            yield look(subject, larger)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("number", "name", "text", "defect"),
    fast_one_in(8, (pytest.param(n, *x, id=f"{x[0]}-{n}") for n, x in enumerate(DEFECTS))),
)
def test_a_defect_of_the_forward_has_one_name(number, name, text, defect):
    rivals = number % _RIVALS == 0
    left = {each.name: Claim(each) for each in SEMANTICS if rivals or each.name == name}
    clearly = set()
    for scene in scenes(made(defect), text):
        answers = {each: claim.answer(scene) for each, claim in left.items()}
        allowed = (Answer.CLEAR, Answer.EXPLAINED) if not clearly else (Answer.CLEAR, Answer.EXPLAINED, Answer.SILENT)
        left = {each: left[each] for each, answer in answers.items() if answer in allowed}
        clearly |= {each for each in left if answers[each] is Answer.CLEAR}
        assert name in left, (scene.case, answers[name])
    assert name in clearly
    others = {other for other in set(left) & clearly if not canonical(name, other)}
    assert others <= SHARED.get(name, set()), others


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "defect"), fast_one_in(1, (pytest.param(*x) for x in DEFECTS if x[0] in NAMED), kept=3)
)
def test_a_defect_of_the_forward_is_named(name, text, defect):
    assert named(made(defect), text).name == name
