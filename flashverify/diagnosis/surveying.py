"""What a claim makes of cases that differ from the failing one in a single respect."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.diagnosis.claims import Answer
from flashverify.diagnosis.neighbours import neighbours, simplifications
from flashverify.diagnosis.settings import other_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.supports import Supports
    from flashverify.diagnosis.claims import Claim
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["standing", "surveyed"]

_SHARE = 0.62
"""Of the time, at whose end no further case is asked."""
_WIDE = 64
"""Head dims above which many kernels take another path."""
_LATEST = 0.75
"""The same for the one case that tells most of a wide one."""
_SURVEYED = 24
"""Cases that differ from the failing one in one respect and must fail as well for a claim without conditions."""
_OTHERWISE = 1 / 3
"""Of these cases, those that fail, a larger share that is wrong in another way speaks against a claim without conditions."""


def standing(trials: Trials, scene: Scene, claims: list[Claim]) -> list[Claim]:
    """Of claims that no case contradicted so far those that the survey contradicts least; none where it contradicts all of them often."""
    told = [(claim, list(_survey(trials, scene, claim))) for claim in claims]
    told = [(claim, answers) for claim, answers in told if _share(answers) <= _OTHERWISE]
    for against in ({Answer.RIGHT, Answer.OTHERWISE}, {Answer.RIGHT}):
        left = [claim for claim, answers in told if not against & set(answers)]
        if left:
            return left
    return [claim for claim, _ in told]


def _share(answers: list[Answer]) -> float:
    """Of the failing cases those that are wrong in another way than a claim says."""
    failing = [answer for answer in answers if answer in (Answer.CLEAR, Answer.EXPLAINED, Answer.OTHERWISE)]
    return failing.count(Answer.OTHERWISE) / max(len(failing), 1)


def _survey(trials: Trials, scene: Scene, claim: Claim) -> Iterator[Answer]:
    """What cases say that differ from the failing one in one respect."""
    supports = trials.subject.supports
    cases = chain(
        other_settings(supports, scene.case),
        simplifications(supports, scene.case),
        islice(neighbours(supports, scene.case), _SURVEYED),
    )
    others = chain(trials.of(_with_usual_dims(supports, scene.case), share=_LATEST), trials.of(cases, share=_SHARE))
    return (claim.answer(other) for other in others)


def _with_usual_dims(supports: Supports, case: Case) -> Iterator[Case]:
    """The case with head dims that every path of a kernel takes, where its own are wider."""
    if max(case.dim_qk, case.dim_v) > _WIDE:
        other = change(case, dim_qk=_WIDE, dim_v=_WIDE)
        if other is not None and supports.refusal(other) is None:
            yield other


def surveyed(trials: Trials, scene: Scene, claim: Claim) -> bool:
    """Whether no case that differs in one respect is right although the claim says that it is wrong."""
    return all(answer is not Answer.RIGHT for answer in _survey(trials, scene, claim))
