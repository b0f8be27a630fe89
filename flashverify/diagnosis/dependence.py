"""On which cases something holds: learned from cases that differ in one respect, and tested on fresh ones that it predicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from flashverify.diagnosis.features import OF_VALUES, case_features
from flashverify.diagnosis.learning import Rule, rules
from flashverify.diagnosis.neighbours import neighbours, simplifications
from flashverify.diagnosis.places import features_of
from flashverify.diagnosis.settings import other_settings
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flashverify.case.case import Case
    from flashverify.diagnosis.features import Value
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["ContradictionError", "Dependence"]

NEEDED = 3
"""Fresh cases of either kind that a condition must predict."""
_ROUNDS = 90
_EXPANDED = 6
"""Cases whose neighbours are tried."""
_NEAR = 1.0
"""How much more than the simplest rule another one may cost to be told apart from it."""


class ContradictionError(Exception):
    """A run shows that what is asked is no matter of conditions."""


@dataclass(slots=True)
class Dependence:
    """On which cases something holds.

    Args:
        trials: runs the subject.
        label: True where it holds, False where it does not, None where a run does not say; raises ContradictionError.
        share: of the time of `trials` that may be used.

    Attributes:
        rule: the simplest one; None where none separates the cases.
        held: fresh cases on which `rule` predicted that it holds, rightly.
        failed: those on which it predicted that it does not, rightly.
    """

    trials: Trials
    label: Callable[[Scene], bool | None]
    share: float
    rule: Rule | None = None
    held: int = 0
    failed: int = 0
    positive: dict[Case, dict[str, Value]] = field(default_factory=dict)
    negative: dict[Case, dict[str, Value]] = field(default_factory=dict)

    @property
    def tested(self) -> bool:
        """Whether the rule predicted enough fresh cases of both kinds."""
        return self.rule is not None and min(self.held, self.failed) >= NEEDED

    def take(self, scene: Scene) -> bool | None:
        """Adds what a run says."""
        if scene.case in self.positive or scene.case in self.negative:
            return None
        answer = self.label(scene)
        if answer is not None:
            (self.positive if answer else self.negative)[scene.case] = features_of(scene)
        return answer

    def learn(self, start: Case, more: Iterable[Case] = ()) -> None:
        """Runs neighbours of `start`, on which it holds, and the cases `more` until one rule is left that was tested.

        Raises:
            ContradictionError: a run raised it.
        """
        for scene in list(self.trials.scenes.values()):
            self.take(scene)
        supports = self.trials.subject.supports
        near = chain(other_settings(supports, start), simplifications(supports, start))
        for scene in self.trials.of(near, share=self.share):
            self.take(scene)
        queue = [*neighbours(supports, start), *more]
        expanded = {start}
        for _ in range(_ROUNDS):
            if not self.positive or not self.trials.left(self.share):
                return
            found = rules(list(self.positive.values()), list(self.negative.values()))
            if not found:
                self.rule = None
                return
            if self.rule is None or found[0].conditions != self.rule.conditions:
                self.rule, self.held, self.failed = found[0], 0, 0
            queue = [case for case in queue if not self.trials.known(case)]
            chosen = self._next(queue, found, start) or self._extreme(queue)
            if chosen is None:
                known = self.positive if self.held < NEEDED else self.negative
                far = next((c for c in reversed(known) if c not in expanded), None)
                if self.tested or far is None or len(expanded) > _EXPANDED:
                    return
                expanded.add(far)
                queue = [*neighbours(supports, far), *other_settings(supports, far)]
                continue
            fresh = self.trials.scene(chosen)
            if fresh is not None:
                predicted = self.rule.of(features_of(fresh))
                answer = self.take(fresh)
                if answer is not None and answer == predicted:
                    self.held += answer
                    self.failed += not answer

    def _next(self, queue: list[Case], found: list[Rule], start: Case) -> Case | None:
        """The case about which near rules disagree most; else one that the first rule is yet to predict; None where there is no use."""
        near = [rule for rule in found if rule.cost <= found[0].cost + _NEAR][:150]
        weights = [4.0 ** (found[0].cost - rule.cost) for rule in near]
        total = sum(weights)
        best, most = None, 0.02
        wanted = None
        known = next(iter(self.positive.values())) if start not in self.positive else self.positive[start]
        for case in queue:
            features = self._features(case, start, known)
            said = [rule.of(features) for rule in near]
            if said[0] is not None and wanted is None:
                short = self.held < NEEDED if said[0] else self.failed < NEEDED
                wanted = case if short else None
            share = sum(w * (0.5 if s is None else s) for w, s in zip(weights, said, strict=True)) / total
            gain = share * (1 - share) / (1 + work(case) / 30_000)
            if gain > most:
                best, most = case, gain
        return best if best is not None else wanted

    def _extreme(self, queue: list[Case]) -> Case | None:
        """A case farthest beyond a limit of the rule, where it should hold and may not: limits are often those of a range."""
        assert self.rule is not None
        for each in self.rule.conditions:
            if each.comparison not in (">=", "<") or isinstance(each.value, str) or each.feature in OF_VALUES:
                continue
            values = {case: case_features(case).get(each.feature) for case in queue}
            inside = {c: v for c, v in values.items() if isinstance(v, int) and each.of({each.feature: v})}
            known = [v for f in self.positive.values() if isinstance(v := f.get(each.feature), int)]
            sign = 1 if each.comparison == ">=" else -1
            beyond = {c: sign * v for c, v in inside.items() if sign * v > max(sign * k for k in known)}
            if beyond:
                return max(beyond, key=lambda case: (beyond[case], -work(case)))
        return None

    def _features(self, case: Case, start: Case, known: dict[str, Value]) -> dict[str, Value]:
        """Features of a case that was not run; those of its values only where they are like those of `start`."""
        found = case_features(case, self.trials.subject.form(case))
        like = case.values.regime == start.values.regime and case.logits == start.logits and not case.values.edits
        if like and (case.softmax_scale == start.softmax_scale or not case.logits.names()):
            ratio = case.softmax_scale / start.softmax_scale if start.softmax_scale else 1.0
            numbers = {name: value for name in OF_VALUES if isinstance(value := known.get(name), float)}
            found |= {name: ratio * value for name, value in numbers.items()}
        return found
