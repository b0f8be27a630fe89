"""Whether a mistake that was named in one modifier is made in the one that most kernels have too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.families import usual
from flashverify.diagnosis.related_cases import grown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.trials import Trials

__all__ = ["sibling"]

_SEEDS = (61, 62)
"""Of the cases with the other modifier; all of them have to show the mistake."""


def sibling(trials: Trials, case: Case, claim: Claim) -> Claim | None:
    """The same mistake in ALiBi, where `claim`, about another modifier, explains `case` and a case with ALiBi in its place shows it too.

    Args:
        trials: runs of the subject.
        case: where the claim holds; it has no ALiBi.
        claim: with a name.
    """
    name = usual(claim.semantics.name)
    if name == claim.semantics.name or not name.startswith("alibi-") or claim.conditions or case.logits.alibi:
        return None
    found = Claim(next(semantics for semantics in SEMANTICS if semantics.name == name))
    scenes = [trials.scene(each) for each in _with_alibi(case)]
    told = [scene is not None and found.answer(scene) is Answer.CLEAR for scene in scenes]
    return found if told and all(told) else None


def _with_alibi(case: Case) -> Iterator[Case]:
    for seed in _SEEDS:
        larger = grown(case, 4, 9, regime="normal", seed=seed)
        logits = replace(case.logits, alibi=True, relative_bias=None, sink=False)
        found = None if larger is None else change(larger, logits=logits)
        if found is not None:
            yield found
