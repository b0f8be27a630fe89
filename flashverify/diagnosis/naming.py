"""Which wrong semantics explains a failure and the cases around it: always, on some cases, or at some places."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.dependence import ContradictionError, Dependence
from flashverify.diagnosis.kin import one_of_a_family
from flashverify.diagnosis.placing import WHOLE, placed
from flashverify.diagnosis.records import Record, of_one_detail, of_one_way, settled
from flashverify.diagnosis.related_cases import variants, windows
from flashverify.diagnosis.settings import other_settings
from flashverify.diagnosis.surveying import standing, surveyed
from flashverify.diagnosis.telling_cases import telling
from flashverify.diagnosis.withstanding import withstood

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["Named", "named", "named_at_places"]

_NEEDED = 2
"""Further cases that a claim must explain, each of them clearly."""
_TRIED = 8
"""Further cases that it must at least not contradict, beside those with other windows and one that is larger than any tile."""
_APART = 2
"""Times as many cases, after which those that are made to tell several claims apart are tried instead."""
_LARGE = 128
"""Rows and keys of a sequence that the largest related cases have more: a tile, and a block of a pattern, ends within them."""
_SHARES = {"always": 0.5, "promising": 0.8, "told": 0.9, "sometimes": 0.75, "somewhere": 0.88, "both": 0.95}
"""Of the time, at whose end a search begins no further case."""
_UNKNOWN = "; some cases are right for a reason that was not found"
_JOINED = 3
"""Conditions from which on a place may say the same more simply."""
_FEW = 3
"""Claims left, at most, for which a search goes on beyond its share."""
_ASKED = 4
"""Claims whose conditions are learned."""


@dataclass(slots=True)
class Named:
    """What explains a failure.

    Attributes:
        claims: those that no case tells apart, the first of which gives the name.
        conditions: where the first one is wrong, on the case and on places in it.
        evidence: in words.
        clear: further cases that the first one explains clearly.
        open: whether some cases are right for a reason that was not found.
    """

    claims: list[Claim]
    conditions: tuple[Condition, ...] = ()
    evidence: str = ""
    clear: int = 0
    open: bool = False

    def explains(self, scene: Scene) -> bool:
        """Whether the first one explains a failing run."""
        claim = Claim(self.claims[0].semantics, self.conditions)
        return claim.answer(scene) in (Answer.CLEAR, Answer.EXPLAINED)


def _claims_of(scene: Scene, within: Callable[[], bool]) -> list[Claim]:
    """The semantics that expect what the subject returned; of those that were tried where the time was over before all were."""
    found = []
    for semantics in SEMANTICS:
        claim = Claim(semantics)
        if claim.answer(scene) in (Answer.CLEAR, Answer.EXPLAINED):
            found.append(claim)
        if not within():
            break
    scene.memo[WHOLE] = tuple(claim.semantics for claim in found)
    return found


def named(trials: Trials, scene: Scene) -> Named | None:
    """What explains `scene` and the cases around it, on whole cases; None where nothing does."""
    return withstood(trials, scene, _named(trials, scene))


def _named(trials: Trials, scene: Scene) -> Named | None:
    whole = _claims_of(scene, lambda: trials.within(_SHARES["always"]))  # else conditions alone may still be learned
    records, found = _always(trials, scene, [Record(claim) for claim in whole])
    if found is not None:
        found.claims = one_of_a_family(_of_alike_details(trials, standing(trials, scene, found.claims)))
        if not found.claims:
            return None
    if found is not None and (fixed := of_one_way(trials, found.claims[0])) is not None:
        claim, refuted = fixed
        narrowed = _sometimes(trials, scene, claim, (), _SHARES["sometimes"])
        return narrowed or (None if refuted else replace(found, open=True))
    if found is not None and not surveyed(trials, scene, found.claims[0]):
        narrowed = _sometimes(trials, scene, found.claims[0], (), _SHARES["sometimes"])
        if narrowed is not None:
            narrowed.claims += found.claims[1:]
        else:
            found.evidence, found.open = found.evidence + _UNKNOWN, True
        return narrowed or found
    if found is not None:
        return found
    records.sort(key=lambda record: -record.count(Answer.CLEAR))
    for record in records[:_ASKED]:
        found = _sometimes(trials, scene, record.claim, (), _SHARES["sometimes"])
        if found is not None:
            return _simpler_at_places(trials, scene, found)
    return None


def _simpler_at_places(trials: Trials, scene: Scene, found: Named) -> Named:
    """What holds at a place, where many conditions on cases had to be joined: often they say which cases have that place."""
    if len(found.conditions) < _JOINED:
        return found
    other = _named_at_places(trials, scene)
    simpler = other is not None and not other.open and len(other.conditions) < len(found.conditions)
    return other if other is not None and simpler else found


def _of_alike_details(trials: Trials, claims: list[Claim]) -> list[Claim]:
    """Without those that need another detail on each case, where the first one does not: with tiles of any size a claim explains any size."""
    if len(claims) < 2 or not of_one_detail(trials, claims[0]):
        return claims
    return [claims[0], *(claim for claim in claims[1:] if of_one_detail(trials, claim))]


def named_at_places(trials: Trials, scene: Scene) -> Named | None:
    """What explains `scene` and the cases around it where it is wrong at some places only; None where nothing does."""
    return withstood(trials, scene, _named_at_places(trials, scene))


def _named_at_places(trials: Trials, scene: Scene) -> Named | None:
    claims = placed(trials, scene, _SHARES["somewhere"])
    for claim, evidence in claims:
        if not evidence:
            continue
        same = [other for other, words in claims if words and other.conditions == claim.conditions]
        if surveyed(trials, scene, claim):
            return Named(_distinct(claim, same), claim.conditions, evidence)
        narrowed = _sometimes(trials, scene, claim, claim.conditions, _SHARES["both"])
        return narrowed or Named(_distinct(claim, same), claim.conditions, evidence + _UNKNOWN, open=True)
    for claim, _ in claims[:_ASKED]:
        found = _sometimes(trials, scene, claim, claim.conditions, _SHARES["both"])
        if found is not None:
            return found
    return None


def _distinct(first: Claim, more: list[Claim]) -> list[Claim]:
    names = {first.semantics.name: first}
    for claim in more:
        names.setdefault(claim.semantics.name, claim)
    return list(names.values())


def _always(trials: Trials, scene: Scene, records: list[Record]) -> tuple[list[Record], Named | None]:
    """The claims that no case contradicts, and what explains every case, if there is one."""
    refusal = trials.subject.supports.refusal
    tried, needed = 0, _TRIED + sum(refusal(each) is None for each in windows(scene.case))
    related = list(variants(trials.subject, scene.case))
    large = {each for each in related if _is_large(each, scene.case)}
    others = iter(related)
    cases = chain(islice(others, _NEEDED), other_settings(trials.subject.supports, scene.case), others)
    runs = _runs(trials, cases, lambda: _is_promising(records))  # of what is left when it is asked
    for variant in runs:
        if variant is scene:
            continue
        tried += 1
        records = [record for record in records if record.add(variant)]
        always = [record for record in records if record.always]
        clear = tried >= needed and all(record.count(Answer.CLEAR) >= _NEEDED for record in always)
        enough = clear and (not large or any(map(trials.known, large)))
        if not always or (enough and (len(always) == 1 or tried >= _APART * needed)):
            break
    fits = [r for r in records if r.always and r.count(Answer.CLEAR) >= _NEEDED and tried >= needed]
    if len(fits) > 1:
        for variant in trials.of(telling(trials.subject, scene.case), share=_SHARES["told"]):
            fits = [record for record in fits if record.add(variant) and record.always]
            if len(fits) < 2:
                break
    fits = settled(fits)
    if not fits:
        return records, None
    return records, Named([record.claim for record in fits], (), fits[0].explained, fits[0].count(Answer.CLEAR))


def _runs(trials: Trials, cases: Iterator[Case], go_on: Callable[[], bool]) -> Iterator[Scene]:
    """The runs of `cases` within their share of the time, and within a larger one if it is worth while to go on then."""
    yield from trials.of(cases, share=_SHARES["always"])
    if go_on():
        yield from trials.of(cases, share=_SHARES["promising"])


def _is_promising(records: list[Record]) -> bool:
    """Whether a few claims are left, one of which explained a further case clearly: no search that comes later is as near to a name."""
    alive = [record for record in records if record.always]
    return 0 < len(alive) <= _FEW and any(record.count(Answer.CLEAR) for record in alive)


def _is_large(case: Case, start: Case) -> bool:
    return min(case.seq_q - start.seq_q, case.seq_k - start.seq_k) >= _LARGE


def _sometimes(trials: Trials, scene: Scene, claim: Claim, places: tuple[Condition, ...], share: float) -> Named | None:
    """The claim with the conditions under which it explains every case; None where none was found and tested."""
    record = Record(claim)

    def label(other: Scene) -> bool | None:
        if not record.add(other):
            raise ContradictionError
        answer = record.answers[-1]
        return None if answer is Answer.SILENT else answer is not Answer.RIGHT

    _with_the_other_dlse(trials, scene)
    dependence = Dependence(trials, label, share)
    try:
        dependence.learn(scene.case, variants(trials.subject, scene.case))
    except ContradictionError:
        return None
    if not dependence.tested or dependence.rule is None or record.count(Answer.CLEAR) <= _NEEDED:
        return None
    evidence = (
        f"{record.explained}; of fresh cases {dependence.held} fail and {dependence.failed} are right"
        " as the conditions predict"
    )
    return Named([claim], (*places, *dependence.rule.conditions), evidence, record.count(Answer.CLEAR))


def _with_the_other_dlse(trials: Trials, scene: Scene) -> None:
    """Runs the case with a gradient through the LSE, or without: many gradients that are wrong with it look alike without."""
    case = scene.case
    if case.grad.backward and trials.left():
        other = replace(case, grad=replace(case.grad, dlse=not case.grad.dlse))
        if trials.subject.supports.refusal(other) is None:
            trials.scene(other)
