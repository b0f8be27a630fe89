"""Which of the rules that hold on every counted case is said."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.right_cases import is_without, shows
from flashverify.diagnosis.readings.masks.rules import Rule, rules
from flashverify.diagnosis.readings.said import ON_FAILING

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.counted import Counted

__all__ = ["Refuting", "chosen_rule"]

_RULES = 400
"""Rules of one set that are tested."""
_FEWEST = 3
"""Cases on which a rule with a further set says something, at least."""


class Refuting(NamedTuple):
    """Cases that may refute a rule: some that are right, and those with a wrong O that were not counted."""

    right: list[Scene]
    failing: list[Scene]


def chosen_rule(found: list[Counted], name: str, kind: str, refuting: Refuting, *, alone: bool) -> tuple[str, int]:
    """The rule of a set of wrong pairs that holds on all cases, in words, and on how many it says something; empty where there is none.

    Of several it is the first one that says least of the runs that are right. One that would make such a run wrong speaks of the cases
    that fail alone. Nothing is said where pairs have weights that are no counts.

    Args:
        found: what was counted on each case.
        name: of the output.
        kind: of wrong pairs.
        refuting: other cases.
        alone: whether the mask of the output is wrong in no other way: the pairs that O misses then explain every wrong O.
    """
    having = [each for each in found if name in each.masks]
    start = next((each for each in having if bool(each.masks[name].of(kind).any())), None)
    if start is None or any(bool(each.masks[name].broken.any()) for each in having):
        return "", 0
    mask, held = start.masks[name], 0
    best: Rule | None = None
    least = len(refuting.right) + 1
    for rule in islice(rules(start.scene, mask.of(kind), mask.read, name, hidden=kind == "surplus"), _RULES):
        if rule.joined and best is not None:
            continue  # right cases without a part of the mask tell nothing of two sets
        if kind == "doubled" and rule.everything:
            return "", 0  # no mask, but row sums that are wrong
        cases = _cases(rule, start, having, name, kind)
        if not tested_on(cases) or (rule.within is not None and len(cases) < _FEWEST):
            continue
        against = sum(_speaks(rule, scene, kind) for scene in refuting.right)
        if against >= least:
            continue
        if (
            alone
            and (kind, name) == ("missing", "o")
            and not all(is_without(s, rule.where(s)) for s in refuting.failing)
        ):
            continue
        best, least, held = rule, against, len(cases)
        if not least:
            break
    if best is None:
        return "", 0
    denied = name == "o" and any(shows(scene, best.where(scene)) for scene in refuting.right)
    return f"{best.words}{ON_FAILING}" if denied else best.words, held


def _cases(rule: Rule, start: Counted, having: list[Counted], name: str, kind: str) -> list[Scene]:
    """The cases of which the rule says something, all of it right; none where it says something wrong."""
    cases = [start.scene]
    for each in having:
        if each is start:
            continue
        other = each.masks[name]
        predicted, there = rule.where(each.scene) & other.read, other.of(kind)
        if bool((predicted == there).all()):
            cases += [each.scene] * bool(there.any())
        elif other.wrong or name in each.scene.failures:
            return []
    return cases


def _speaks(rule: Rule, scene: Scene, kind: str) -> bool:
    """Whether a rule says that pairs of a case are wrong."""
    see = visible_of(scene)
    return bool((rule.where(scene) & (~see if kind == "surplus" else see)).any())
