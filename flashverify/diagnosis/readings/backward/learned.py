"""When a formula that was read holds, where some cases are right in spite of it: conditions that were learned and tested."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.conditions import in_words
from flashverify.diagnosis.dependence import ContradictionError, Dependence
from flashverify.diagnosis.hypothesis import Semantics
from flashverify.diagnosis.related_cases import variants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.hypothesis import Alternative
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.confirming import Confirmed
    from flashverify.diagnosis.trials import Trials

__all__ = ["UNKNOWN", "reservation"]

UNKNOWN = "; some cases are right for a reason that was not found"
"""Behind a sentence that some cases contradict, with no condition that says which."""
_SHARE = 0.95
_NUMBERS = count()
"""A scene keeps alternatives by the name of their semantics."""


def reservation(
    trials: Trials, scene: Scene, output: str, build: Callable[[Scene], Iterator[Alternative]], held: Confirmed
) -> str:
    """When the formula holds, to be put behind a sentence; empty where it always does.

    Args:
        trials: runs of the subject; further ones are made where one feature does not tell right cases from wrong ones.
        scene: a failing one.
        output: that is explained.
        build: what the formula expects on a case.
        held: the cases of the formula that were tried.
    """
    if held.always:
        return ""
    if said := held.reservation():
        return said
    only = frozenset({output})
    claim = Claim(Semantics(name=f"when {next(_NUMBERS)}", sentence="", build=build, outputs=(output,)))

    def label(other: Scene) -> bool | None:
        answer = claim.answer(other, only)
        if answer is Answer.OTHERWISE:
            raise ContradictionError
        return None if answer is Answer.SILENT else answer is not Answer.RIGHT

    dependence = Dependence(trials, label, _SHARE)
    try:
        dependence.learn(scene.case, variants(trials.subject, scene.case))
    except ContradictionError:
        return UNKNOWN
    if not dependence.tested or dependence.rule is None or not dependence.rule.conditions:
        return UNKNOWN
    return f", {in_words(dependence.rule.conditions)}"
