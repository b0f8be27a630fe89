"""Numbers of a mask that are others than declared: sides of a window, lengths, prefixes and diagonals, by formulas that are learned."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.readings import readings
from flashverify.diagnosis.readings.masks.bounds import BOUNDS, Within, bounded, within
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.number_forms import NumberForm, number_forms
from flashverify.diagnosis.readings.masks.numbers import Counts, _told_apart, _without, number_in_effect
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.planted import Plain, planted
from tests.fast_tier import fast_one_in

FORWARD = "fv1 heads_q=2 heads_kv=2 seq_q=14 seq_k=33 dim_qk=16 dim_v=16 dtype=fp32 backward=no "


def halves(self, i, j, left, right):
    """Both sides are a half where there are two."""
    if left is not None and right is not None:
        left, right = left // 2, right // 2
    return Plain.window(self, i, j, left, right)


def half_of_the_shift(self, problem, queries, keys):
    return (keys - queries) // 2 if problem.causal == "bottom-right" else 0


READ = [
    (
        {"window": halves},
        "window=5,9",
        "O has the mask in which the left side of the window is left // 2 and the right side of the window is right // 2",
    ),
    (
        {"prefix": lambda s, j, lengths, batch: j < lengths[batch] // 4 * 4},
        "causal=top-left prefix=17",
        "O has the mask in which the prefix is prefix // 4 * 4",
    ),
    (
        {"shift": half_of_the_shift},
        "causal=bottom-right",
        "O has the mask in which the diagonal (key - row) is the declared one // 2",
    ),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("defect", "mask", "sentence"), fast_one_in(1, (pytest.param(*x, id=x[1]) for x in READ), kept=2)
)
def test_the_formula_of_a_number_is_said(defect, mask, sentence):
    trials = Trials(planted(**defect), 300)
    scene = trials.scene(parse_case(FORWARD + mask))
    assert scene.failures

    assert readings(trials, scene, "o").sentences[0] == sentence


def test_rows_tell_what_a_number_is():
    scene = look(Plain(), parse_case(FORWARD + "window=5,9"))
    left = next(each for each in BOUNDS if each.part == "left")
    see = bounded(scene, {left: torch.full((1, 1, 1), 3)})
    everything = torch.ones_like(visible_of(scene))
    found = within(scene, (left,), see, everything)

    assert found is not None
    for row in range(14):
        low, high = int(found[0].low[0, 0, row]), int(found[0].high[0, 0, row])
        assert low == min(row, 3)
        assert high == 4 or row < 4
    forms = {each.words for each in number_forms(left, [scene], found)}
    assert {"left - 2", "min(left, 3)", "left // 2 + 1", "right - 6", "3"} <= forms


@pytest.mark.parametrize(
    ("more", "keys", "plain", "told"),
    [(("5,9", "2,3"), (3, 1), True, True), (("5,9",), (3,), True, False), (("5,9", "2,3"), (3, 1), False, False)],
)
def test_a_formula_of_one_number_is_not_told_from_others(more, keys, plain, told):
    scenes = [look(Plain(), parse_case(f"{FORWARD}window={sides}")) for sides in more]
    found = [[Within(torch.tensor([n]), torch.tensor([n + 1]))] for n in keys]
    form = NumberForm("left - 2", lambda scene: scene, plain)

    assert _told_apart({BOUNDS[0]: form}, found, scenes) is told


class OddSidesHalved(Plain):
    """A left side that is even is right."""

    def window(self, i, j, left, right):
        return super().window(i, j, left // 2 if left % 2 else left, right)


def test_cases_with_other_numbers_that_are_right_refute_a_formula():
    subject = OddSidesHalved()
    trials = Trials(subject, 300)
    texts = (FORWARD.replace("seq_k=33", f"seq_k={keys}") + f"window=5,9 seed={keys}" for keys in (33, 30))

    def count(scenes):
        return [Counts(s, subject.see(s.problem), torch.ones_like(visible_of(s)), "o") for s in scenes]

    found = count([trials.scene(parse_case(text)) for text in texts])
    words, cases = number_in_effect(trials, found, [], count)

    assert words == "the mask in which the left side of the window is left // 2, on the cases that fail"
    assert cases > 3


def test_a_part_that_right_cases_lack_is_said():
    padded, full = (look(Plain(), parse_case(f"{FORWARD}causal=bottom-right {more}")) for more in ("klen=30", ""))
    see = visible_of(padded)

    assert _without([Counts(padded, see, see, "o")], [full]) == ", only with key lengths"
    assert _without([Counts(full, see, see, "o")], [padded]) == ", on the cases that fail"


def test_a_mask_with_another_hole_has_no_number():
    scene = look(Plain(), parse_case(FORWARD + "window=5,9"))
    see = visible_of(scene).clone()
    see[0, 1, 9, 7] = False

    assert all(
        within(scene, bounds, see, torch.ones_like(see)) is None
        for bounds in ((BOUNDS[0],), (BOUNDS[1],), (BOUNDS[0], BOUNDS[1]))
    )
