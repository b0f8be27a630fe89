"""What every failing case has, where other things that it needs besides were not found."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from flashverify.diagnosis.features import CONSEQUENCES, OF_VALUES, case_features
from flashverify.diagnosis.learning import single
from flashverify.diagnosis.neighbours import neighbours, simplifications
from flashverify.diagnosis.places import features_of

if TYPE_CHECKING:
    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["Needed", "necessary"]

_FAILING, _RIGHT = 6, 3
"""Failing cases that all have it, and right ones that do not; as many fresh ones that do not must be right too."""
_CHANCE = 1e-4
"""That all cases without it are right has at most this probability, if they fail as often as those with it."""
_TRIED = 4
"""Conditions that are put to fresh cases."""


@dataclass(frozen=True, slots=True)
class Needed:
    """One condition without which no case fails.

    Attributes:
        condition: on the case.
        without: cases for which it does not hold, all of them right.
        right: cases for which it holds, and that are right all the same.
    """

    condition: Condition
    without: int
    right: int


def necessary(trials: Trials, start: Scene, share: float, *, said: tuple[str, ...] = ()) -> Needed | None:
    """The condition that most right cases lack and every failing case has; None where fresh cases that lack it fail, or where there is none.

    Args:
        trials: runs of the subject.
        start: a failing run, near which fresh cases are looked for.
        share: of the time that may be used.
        said: features about which something is said already.
    """
    for condition in _candidates(trials, said)[:_TRIED]:
        fresh = 0
        for case in chain(
            simplifications(trials.subject.supports, start.case), neighbours(trials.subject.supports, start.case)
        ):
            if trials.known(case) or condition.of(case_features(case, trials.subject.form(case))) is not False:
                continue
            if not trials.left(share):
                return None
            scene = trials.scene(case)
            if scene is None:
                continue
            if scene.failures:
                break
            fresh += 1
            if fresh == _RIGHT:
                break
        if fresh == _RIGHT:
            told = [(condition.of(features_of(s)), bool(s.failures)) for s in trials.scenes.values()]
            without, right, failing = (told.count(each) for each in ((False, False), (True, False), (True, True)))
            if (False, True) not in told and (right / (right + failing)) ** without <= _CHANCE:
                return Needed(condition, without, right)
    return None


def _candidates(trials: Trials, said: tuple[str, ...]) -> list[Condition]:
    failing = [features_of(scene) for scene in trials.scenes.values() if scene.failures]
    right = [features_of(scene) for scene in trials.scenes.values() if not scene.failures]
    if len(failing) < _FAILING or len(right) < _RIGHT:
        return []
    skipped = {*OF_VALUES, *CONSEQUENCES, "backward", *said}
    found = []
    for cost, condition in single(failing, right):
        refused = sum(condition.of(features) is False for features in right)
        if refused >= _RIGHT and condition.feature not in skipped:
            found.append((refused / cost, condition))
    found.sort(key=lambda each: (-each[0], str(each[1])))
    return [condition for _, condition in found]
