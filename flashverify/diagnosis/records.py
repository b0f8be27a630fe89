"""What cases said of a claim, and whether one detail of it, such as one size of a tile, explains them all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.claims import Answer, Claim, agreeing
from flashverify.diagnosis.mixing import alternatives

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["Record", "of_one_detail", "of_one_way", "settled"]

_MOST = 0.5
"""Share of the failing cases that the detail of a claim explains, at least, where none explains all."""


@dataclass(slots=True)
class Record:
    """A claim and what was said of it since the first case."""

    claim: Claim
    answers: list[Answer] = field(default_factory=list)

    def add(self, scene: Scene) -> bool:
        """Takes an answer; False where the kernel is wrong in another way."""
        self.answers.append(self.claim.answer(scene))
        return self.answers[-1] is not Answer.OTHERWISE

    def count(self, *answers: Answer) -> int:
        """How many of its answers are one of these."""
        return sum(answer in answers for answer in self.answers)

    @property
    def always(self) -> bool:
        """Whether no case was right where the claim says that it is wrong."""
        return Answer.RIGHT not in self.answers

    @property
    def explained(self) -> str:
        """In words, how many cases it explains."""
        clear = self.count(Answer.CLEAR)
        return f"it explains {clear + self.count(Answer.EXPLAINED)} further cases, {clear} of them clearly"


def settled(records: list[Record]) -> list[Record]:
    """Those whose claims have no number, or one that the cases determine; all where there are none of these."""
    return [record for record in records if not record.claim.undetermined] or records


def of_one_way(trials: Trials, claim: Claim) -> tuple[Claim, bool] | None:
    """The claim with one detail on all cases, such as one size of a tile, where some are right under it; None where it needs no conditions.

    With a detail of its own on each case a claim says too little: a right case may agree with a size, or with a part of what is wrong,
    that no failing case has. Where it needs none, its detail becomes the one that explains every case, where there is one, and none where its
    own explains few. It is refuted, which the second value says, where other cases are wrong in another way besides.
    """
    details = {each.detail for other in trials.scenes.values() for each in alternatives(claim.semantics, other)}
    if claim.semantics.one_way or not any(details):
        return None
    fixed, otherwise = Record(Claim(replace(claim.semantics, one_way=True))), False
    for each in sorted(trials.scenes.values(), key=lambda other: not other.failures):
        if fixed.add(each):
            continue
        if claim.answer(each) is not Answer.OTHERWISE:
            if not _usual(trials, claim):
                claim.detail = ""
            return None
        otherwise = True
    if fixed.always:
        claim.detail = claim.detail if otherwise else fixed.claim.detail or claim.detail
        return None
    return Claim(fixed.claim.semantics), otherwise


def _usual(trials: Trials, claim: Claim) -> bool:
    """Whether the detail of a claim, where it is that of one alternative, explains most of the failing cases that one can explain."""
    told = []
    for scene in (each for each in trials.scenes.values() if each.failures):
        ways = {each.detail for each in alternatives(claim.semantics, scene)}
        if claim.detail in ways:
            told.append(agreeing(claim.semantics, scene, frozenset(scene.failures), claim.region(scene), claim.detail))
    return not told or sum(each is not None for each in told) > _MOST * len(told)


def of_one_detail(trials: Trials, claim: Claim) -> bool:
    """Whether one detail of a claim, such as one size of a tile, agrees with every case; it has none, or one for all."""
    fixed = Record(Claim(replace(claim.semantics, one_way=True), claim.conditions))
    return all(fixed.add(each) for each in sorted(trials.scenes.values(), key=lambda other: not other.failures))
