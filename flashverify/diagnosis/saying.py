"""A name that was given, in the words of a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.conditions import in_words
from flashverify.judge.record import Diagnosis
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from flashverify.diagnosis.claims import Claim
    from flashverify.diagnosis.naming import Named
    from flashverify.diagnosis.observation import Scene

__all__ = ["claim_words", "named_diagnosis", "sentence_of"]

_SCOPES = (
    (frozenset({"o", "lse"}), "in the forward"),
    (frozenset({"o"}), "in O, not in the LSE"),
    (frozenset({"lse"}), "in the LSE, not in O"),
    (frozenset({"dq"}), "in dQ alone"),
    (frozenset({"dk", "dv"}), "in dK and dV alone"),
    (frozenset({"dk"}), "in dK alone"),
    (frozenset({"dv"}), "in dV alone"),
)


def named_diagnosis(answer: Named, scene: Scene, place: str, remark: str) -> Diagnosis:
    """The diagnosis of an answer that `scene` shows, with where that is and what else is to be said in words."""
    first, *others = answer.claims
    words = ", ".join(filter(None, (claim_words(first), _scope(first, scene), in_words(answer.conditions))))
    sentence = sentence_of(words)
    if others:
        sentence = (
            f"{sentence} Every case tried is consistent with this as well: {' or '.join(map(claim_words, others))}."
        )
    return Diagnosis(
        first.semantics.name,
        sentence + remark,
        tuple(claim.semantics.name for claim in others),
        place,
        conditions=tuple(map(str, answer.conditions)),
        evidence=sentence_of(answer.evidence),
    )


def claim_words(claim: Claim) -> str:
    """What is wrong, without where and when."""
    return claim.semantics.sentence + (f" ({claim.detail})" if claim.detail else "")


def _scope(claim: Claim, scene: Scene) -> str:
    """In which part of the computation."""
    scope = next((words for names, words in _SCOPES if names == claim.scope), "")
    gradients = any(name in scene.outputs for name in BACKWARD)
    if claim.scope <= set(FORWARD) and "o" in claim.scope and gradients:
        return "in the forward alone"
    if claim.scope and not claim.scope & set(FORWARD) and not scope:
        return "in the backward alone"
    return "" if not gradients and claim.scope == {"o", "lse"} else scope


def sentence_of(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + "."
