"""Whether a mistake that was named in one modifier, or one part of the mask, is made in the one that most kernels have too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.families import usual
from flashverify.diagnosis.related_cases import grown
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.diagnosis.trials import Trials

__all__ = ["sibling"]

_SEEDS = (61, 62)
"""Of the cases with the other part; all of them have to show the mistake."""


def sibling(trials: Trials, case: Case, claim: Claim) -> Claim | None:
    """The same mistake in ALiBi or a causal mask, where `claim`, about another part, explains `case`.

    Cases with ALiBi, or a causal mask, in the place of that part must show it too.

    Args:
        trials: runs of the subject.
        case: where the claim holds; it has no ALiBi, or no causal mask.
        claim: with a name.
    """
    name = usual(claim.semantics.name)
    with_usual = next((make for prefix, make in _USUAL.items() if name.startswith(prefix)), None)
    if name == claim.semantics.name or with_usual is None or claim.conditions:
        return None
    found = Claim(next(semantics for semantics in SEMANTICS if semantics.name == name))
    cases = [with_usual(case, seed) for seed in _SEEDS]
    scenes = [trials.scene(each) for each in cases if each is not None]
    told = [scene is not None and found.answer(scene) is Answer.CLEAR for scene in scenes]
    return found if told and all(told) else None


def _with_alibi(case: Case, seed: int) -> Case | None:
    larger = None if case.logits.alibi else grown(case, 4, 9, regime="normal", seed=seed)
    return larger and change(larger, logits=replace(case.logits, alibi=True, relative_bias=None, sink=False))


def _with_causal(case: Case, seed: int) -> Case | None:
    """A causal mask in the place of the window, with its alignment; as many rows more as keys, so that no row loses its keys."""
    larger = None if case.mask.causal is not None else grown(case, 9, 9, regime="normal", seed=seed)
    if larger is None:
        return None
    alignment = larger.mask.window_alignment or "top-left"
    try:
        mask = replace(larger.mask, window=None, window_alignment=None, causal=alignment)
    except UsageError:  # beside another part there is none
        return None
    return change(larger, mask=mask)


_USUAL = {"alibi-": _with_alibi, "causal-": _with_causal}
