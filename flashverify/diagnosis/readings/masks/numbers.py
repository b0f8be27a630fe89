"""The masks that have another number than declared: what the side of a window, a length, a prefix or the diagonal is in effect, as a formula."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product
from typing import TYPE_CHECKING, NamedTuple

from flashverify.diagnosis.conditions import Condition, in_words
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.fresh import PLAIN, tested_on
from flashverify.diagnosis.readings.masks.bounds import BOUNDS, bounded, declared_of, within
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.number_cases import number_cases
from flashverify.diagnosis.readings.masks.number_forms import NumberForm, number_forms
from flashverify.diagnosis.readings.masks.right_cases import shows
from flashverify.diagnosis.readings.said import ON_FAILING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.bounds import Bound, Within
    from flashverify.diagnosis.trials import Trials

    Count = Callable[[list[Scene]], list["Counts"]]

__all__ = ["Counts", "number_in_effect"]

_FORMS, _TRIED = 12, 40
"""Formulas of a bound that are held against all cases, and of two together."""
_FEWEST = 4
"""Failing cases that a formula explains, at least."""
_FRESH = 3
"""Cases with other numbers that are counted."""
_VALUES = 3
"""Different numbers that are known exactly, at least, where a formula is not plain."""


class Counts(NamedTuple):
    """A mask that was counted: the case, the pairs that enter an output, and those of which that is known, bool `[B, Hq, Sq, Sk]`."""

    scene: Scene
    effective: Tensor
    read: Tensor
    output: str

    @property
    def wrong(self) -> bool:
        """Whether it is not the declared one."""
        return bool(((self.effective != visible_of(self.scene)) & self.read).any())


def number_in_effect(trials: Trials, found: Sequence[Counts], right: Sequence[Scene], count: Count) -> tuple[str, int]:
    """In words, which other numbers the mask of an output has, and on how many failing cases; empty where no numbers give it.

    Args:
        trials: runs of the subject.
        found: what was counted on failing cases.
        right: runs that are right.
        count: of further runs, what is counted on them.
    """
    wrong = [each for each in found if each.wrong]
    if not tested_on([each.scene for each in wrong]):
        return "", 0
    for bounds in ((each,) for each in BOUNDS):
        if not trials.within():
            return "", 0
        if words := _of_bounds(trials, bounds, wrong, right, count):
            return words
    return _of_bounds(trials, (BOUNDS[0], BOUNDS[1]), wrong, right, count) or ("", 0)


def _of_bounds(
    trials: Trials, bounds: tuple[Bound, ...], wrong: Sequence[Counts], right: Sequence[Scene], count: Count
) -> tuple[str, int] | None:
    if any(declared_of(each.scene, bound) is None for each in wrong for bound in bounds):
        return None
    told = _within(wrong, bounds)
    if told is None:
        return None
    more = list(trials.of(number_cases(trials.subject, wrong[0].scene.case, bounds), share=0.9))
    fresh = [each for each in count([s for s in more if wrong[0].output in s.failures][:_FRESH]) if each.wrong]
    again = _within(fresh, bounds)
    if again is None:
        return None
    told, scenes = told + again, [each.scene for each in (*wrong, *fresh)]
    right = [*right, *(s for s in more if not s.failures and "o" in s.right)]
    forms = [
        list(islice(number_forms(bound, scenes, [each[n] for each in told]), _FORMS)) for n, bound in enumerate(bounds)
    ]
    contradicted: tuple[str, int] | None = None
    for chosen in islice(product(*forms), _TRIED):
        if not trials.within():
            break
        limits = dict(zip(bounds, chosen, strict=True))
        cases = _explained(trials, limits, scenes, wrong[0].output)
        if cases < _FEWEST or not _told_apart(limits, told, scenes):
            continue
        words = _words(limits)
        if not any(_makes_wrong(limits, scene) for scene in right):
            return words, cases
        contradicted = contradicted or (words + _without(wrong, right), cases)
    return contradicted


def _within(found: Sequence[Counts], bounds: tuple[Bound, ...]) -> list[list[Within]] | None:
    """What the numbers of each case are; None where those of some case are not all that is wrong."""
    possible = [within(each.scene, bounds, each.effective, each.read) for each in found]
    told = [each for each in possible if each is not None]
    return told if len(told) == len(found) else None


def _explained(trials: Trials, limits: dict[Bound, NumberForm], counted: Sequence[Scene], output: str) -> int:
    """The failing runs that the formulas explain; 0 where they do not explain one that has the parts."""
    count = len(counted)
    for scene in trials.scenes.values():
        if scene in counted or output not in scene.failures or scene.case.values.regime not in PLAIN:
            continue
        mask = _mask(scene, limits)
        if mask is None:
            continue
        if not scene.agrees(Alternative(inputs=replace(scene.inputs, visible=mask)), frozenset({output})):
            return 0
        count += 1
    return count


def _makes_wrong(limits: dict[Bound, NumberForm], scene: Scene) -> bool:
    mask = _mask(scene, limits)
    return mask is not None and shows(scene, mask ^ visible_of(scene))


def _mask(scene: Scene, limits: dict[Bound, NumberForm]) -> Tensor | None:
    """The mask of the formulas; None where the case has not what they are about."""
    if any(declared_of(scene, bound) is None for bound in limits):
        return None
    values = {bound: form.of(scene) for bound, form in limits.items()}
    known = {bound: value for bound, value in values.items() if value is not None}
    return bounded(scene, known) if len(known) == len(values) else None


def _told_apart(limits: dict[Bound, NumberForm], told: Sequence[list[Within]], scenes: Sequence[Scene]) -> bool:
    """Whether enough numbers are known exactly to tell a formula from others; of a plain one two declared ones do."""
    for n, (bound, form) in enumerate(limits.items()):
        exact, declared = set[int](), set[int]()
        for scene, each in zip(scenes, told, strict=True):
            exact |= set(each[n].low[each[n].low + 1 == each[n].high].tolist())
            value = declared_of(scene, bound)
            declared |= set() if value is None else set(value.flatten().tolist())
        if len(exact) < _VALUES and not (form.plain and len(declared) > 1):
            return False
    return True


def _words(limits: dict[Bound, NumberForm]) -> str:
    parts = [f"{bound.words} is {form.words}" for bound, form in limits.items() if form.words != bound.symbol]
    return f"the mask in which {' and '.join(parts)}"


def _without(wrong: Sequence[Counts], right: Sequence[Scene]) -> str:
    """That right cases lack a part of the mask that all failing ones have; else that it is said of these alone."""
    failing, others = ([_parts(scene) for scene in scenes] for scenes in ([each.scene for each in wrong], right))
    for name in sorted(set().union(*failing, *others)):
        if all(name in each for each in failing) and not any(name in each for each in others):
            return f", {in_words((Condition(name, '==', 'yes'),))}"
    return ON_FAILING


def _parts(scene: Scene) -> set[str]:
    return set(scene.case.mask.parts())
