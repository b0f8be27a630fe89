"""A name that was given, in the words of a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from flashverify.diagnosis.arbitration import unlike
from flashverify.diagnosis.conditions import in_words
from flashverify.diagnosis.narrowing import OTHER_OUTPUTS
from flashverify.judge.record import Diagnosis
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from flashverify.diagnosis.arbitration import Ruling
    from flashverify.diagnosis.claims import Claim
    from flashverify.diagnosis.each_output import Apart
    from flashverify.diagnosis.naming import Named
    from flashverify.diagnosis.observation import Scene

__all__ = ["apart_diagnosis", "claim_words", "named_diagnosis", "ruled_diagnosis", "sentence_of"]

_SCOPES = (
    (frozenset({"o", "lse"}), "in the forward"),
    (frozenset({"o"}), "in O, not in the LSE"),
    (frozenset({"lse"}), "in the LSE, not in O"),
    (frozenset({"dq"}), "in dQ alone"),
    (frozenset({"dk", "dv"}), "in dK and dV alone"),
    (frozenset({"dk"}), "in dK alone"),
    (frozenset({"dv"}), "in dV alone"),
)
_SUMS = frozenset({"dbias", "dsink", "drelative_bias"})


def named_diagnosis(answer: Named, scene: Scene, place: str, remark: str) -> Diagnosis:
    """The diagnosis of an answer that `scene` shows, with where that is and what else is to be said in words."""
    first, *others = answer.claims
    sentence = _sentence(answer, scene)
    return Diagnosis(
        first.semantics.name,
        sentence + remark,
        tuple(claim.semantics.name for claim in others),
        place,
        conditions=tuple(map(str, answer.conditions)),
        evidence=sentence_of(answer.evidence),
    )


def apart_diagnosis(found: Apart, place: str, remark: str) -> Diagnosis:
    """The diagnosis of one output of a kernel, and beside it what is said of those that are wrong in another way."""
    said = named_diagnosis(found.answer, found.scene, place, "")
    others = (
        f"Beside it {name} is wrong in another way: {claim_words(each.claims[0])}."
        for name, each in found.others.items()
    )
    return structs.replace(
        said,
        sentence=f"{' '.join((said.sentence, *others))}{remark}",
        evidence=f"{said.evidence[:-1]}{OTHER_OUTPUTS}.",
        beside=tuple(found.others),
    )


def ruled_diagnosis(ruling: Ruling, scene: Scene, place: str, remark: str) -> Diagnosis:
    """The diagnosis of a name that was held against what is read off the kernel, each of which is said where it stands."""
    assert ruling.answer is not None
    found = named_diagnosis(ruling.answer, scene, place, remark)
    if ruling.fresh:
        found = structs.replace(found, evidence=f"{found.evidence[:-1]}; and {ruling.fresh} of the cases read.")
    if not ruling.read.sentences:
        return found
    read = " ".join(f"{sentence}." for sentence in ruling.read.sentences)
    if not ruling.leads:
        return structs.replace(found, sentence=f"{_sentence(ruling.answer, scene)} Read off the kernel: {read}{remark}")
    said = f"{read} Every case tried is consistent with this as well: {found.sentence[:1].lower()}{found.sentence[1:]}"
    evidence = f"{sentence_of(ruling.read.evidence)} {found.evidence}"
    return Diagnosis(sentence=said, place=place, evidence=evidence, reading=f"{ruling.read.sentences[0]}.")


def _sentence(answer: Named, scene: Scene) -> str:
    """What is wrong, in what part and where; where others that are about something else fit as well, these beside it."""
    first, *others = answer.claims
    where = ", ".join(filter(None, (_scope(first, scene), in_words(answer.conditions))))
    if others and unlike(answer):
        listed = "; or ".join(dict.fromkeys(map(claim_words, answer.claims)))
        return sentence_of(", ".join(filter(None, (f"one of these, which no case tried tells apart: {listed}", where))))
    sentence = sentence_of(", ".join(filter(None, (claim_words(first), where))))
    if others:
        sentence += f" Every case tried is consistent with this as well: {' or '.join(map(claim_words, others))}."
    return sentence


def claim_words(claim: Claim) -> str:
    """What is wrong, without where and when."""
    return claim.semantics.sentence + (f" ({claim.detail})" if claim.detail else "")


def _scope(claim: Claim, scene: Scene) -> str:
    """In which part of the computation."""
    scope = next((words for names, words in _SCOPES if names == claim.scope), "")
    gradients = any(name in scene.outputs for name in BACKWARD)
    if claim.scope <= set(FORWARD) and "o" in claim.scope and gradients:
        return "in the forward alone"
    if claim.scope and claim.scope <= _SUMS:
        return f"in {' and '.join(name for name in BACKWARD if name in claim.scope)} alone"
    if claim.scope and not claim.scope & set(FORWARD) and not scope:
        return "in the backward alone"
    return "" if not gradients and claim.scope == {"o", "lse"} else scope


def sentence_of(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + "."
