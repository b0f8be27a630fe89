"""Whether a formula that was read holds on the failing case and on fresh ones: other seeds, sizes, heads and numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from flashverify.case.modifiers.logits import MODIFIERS
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.conditions import Condition, in_words
from flashverify.diagnosis.features import CONSEQUENCES, case_features
from flashverify.diagnosis.hypothesis import Semantics
from flashverify.diagnosis.neighbours import resized, simplifications
from flashverify.diagnosis.related_cases import grown, peaked, variants
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.hypothesis import Alternative
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials
    from flashverify.subjects.interface import Subject

__all__ = ["Confirmed", "confirmed"]

_CLEAR, _FRESH = 2, 5
"""Fresh cases that a formula must explain clearly, and fresh cases that must not contradict it."""
_PLACED_CLEAR, _PLACED = 3, 9
"""The same of a formula that holds at a place."""
_RIGHT = 3
"""Right cases from which on it is said what they have not."""
_SIMPLER = 8
"""Cases without one thing that are asked whether they are right."""
_NUMBERS = count()
"""A scene keeps alternatives by the name of their semantics."""
_SIZES = ((140, 150), (40, 50), (64, 64), (128, 128), (20, 130), (96, 200), (130, 20), (150, 140))
"""Rows and keys of cases on which places of different sizes are different."""


class Confirmed(NamedTuple):
    """The cases of a formula that held.

    Attributes:
        wrong: that it explains.
        right: that are right, though it says that they are wrong.
        otherwise: whether cases with more parts than the failing one are wrong in another way.
    """

    wrong: list[Scene]
    right: list[Scene]
    otherwise: bool = False

    @property
    def always(self) -> bool:
        """Whether every case is wrong of which it says so."""
        return not self.right

    def reservation(self) -> str:
        """When it holds, by one feature of the cases, to be put behind a sentence; empty where it always does, and where no one feature tells."""
        wrong, right = ([case_features(each.case, each.form) for each in part] for part in (self.wrong, self.right))
        told = [
            condition
            for feature in (wrong[0] if len(right) >= _RIGHT else ())
            for condition in (Condition(feature, "==", "yes"), Condition(feature, "==", "no"), _several(feature))
            if condition is not None
            and all(condition.of(each) is True for each in wrong)
            and all(condition.of(each) is False for each in right)
        ]
        told = [each for each in told if each.feature not in CONSEQUENCES] or told
        if len(told) == 1:  # of several none is known to be the one that matters
            return f", {in_words(told)}"
        return ""


def _several(feature: str) -> Condition | None:
    return Condition(feature, ">=", 2) if feature in ("group", "sequences", "heads_kv", "heads_q") else None


def confirmed(
    trials: Trials,
    scene: Scene,
    output: str,
    build: Callable[[Scene], Iterator[Alternative]],
    *,
    placed: bool,
    by_value: bool = False,
) -> Confirmed | None:
    """What was tried of a formula; None where a case contradicts it or too few could be tried.

    Args:
        trials: runs of the subject.
        scene: the failing one.
        output: that is explained.
        build: what the formula expects on a case.
        placed: whether it holds at some pairs only.
        by_value: whether a number in the code stands beside values.
    """
    only = frozenset({output})
    claim = Claim(Semantics(name=f"reading {next(_NUMBERS)}", sentence="", build=build, outputs=(output,)))
    if claim.answer(scene, only) not in (Answer.CLEAR, Answer.EXPLAINED):
        return None
    needed, enough = (_PLACED_CLEAR, _PLACED) if placed else (_CLEAR, _FRESH)
    answers: dict[Case, Answer] = {}
    known = [each for each in trials.scenes.values() if each is not scene]
    parts, otherwise = _parts(scene.case), False
    for each in known:
        answers[each.case] = claim.answer(each, only)
        if answers[each.case] is Answer.OTHERWISE:
            if _parts(each.case) <= parts:
                return None
            otherwise = True  # what it says of another part may be wrong as well
            del answers[each.case]
    tried = 0
    for other in _fresh(trials, scene, placed, by_value):
        if other.case == scene.case:
            continue
        tried += 1
        answers[other.case] = claim.answer(other, only)
        if answers[other.case] is Answer.OTHERWISE:
            return None
        if list(answers.values()).count(Answer.CLEAR) >= needed and tried >= enough:
            break
    given = list(answers.values())
    if given.count(Answer.CLEAR) < needed or len(given) < enough:
        return None
    for other in trials.of(_without_each(trials.subject, scene.case)):
        answers.setdefault(other.case, claim.answer(other, only))
        if answers[other.case] is Answer.OTHERWISE:
            return None
    wrong = [trials.scenes[case] for case, answer in answers.items() if answer in (Answer.CLEAR, Answer.EXPLAINED)]
    right = [trials.scenes[case] for case, answer in answers.items() if answer is Answer.RIGHT]
    return Confirmed([scene, *wrong], right, otherwise)


def _parts(case: Case) -> frozenset[str]:
    """What a case has of masks and modifiers."""
    return frozenset([*(part.name for part, _ in case.mask.given()), *(m.name for m in MODIFIERS if m.of(case))])


def _fresh(trials: Trials, scene: Scene, placed: bool, by_value: bool) -> Iterator[Scene]:
    case = scene.case
    sized = (resized(replace(case, values=replace(case.values, regime="normal", edits=())), *size) for size in _SIZES)
    sizes = [each for each in sized if each is not None]
    others = [each for each in _renumbered(case) if each is not None]
    steep = peaked(trials.subject, case) if by_value else ()
    if placed:
        return trials.of(
            chain(others[:2], sizes[:2], steep, others[2:4], sizes[2:], others[4:], variants(trials.subject, case))
        )
    return trials.of(chain(others[:2], sizes[:1], steep, others[2:], variants(trials.subject, case)))


def _without_each(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases that lack one of the things that the failing one has each: one of them may be what a formula needs."""
    base = grown(case, 5, 7, regime="normal", seed=case.values.seed + 311)
    sizes = None if base is None else (base.seq_q, base.seq_k, base.dim_qk, base.dim_v, base.dtype, base.storage)
    without = () if base is None else simplifications(subject.supports, base)
    same = (
        each for each in without if (each.seq_q, each.seq_k, each.dim_qk, each.dim_v, each.dtype, each.storage) == sizes
    )
    yield from islice(same, _SIMPLER)


def _renumbered(case: Case) -> Iterator[Case | None]:
    """Cases in which every number that a coefficient may be has changed."""
    group = case.heads_q // case.heads_kv
    sequences = case.batch if case.mask.packed is None else len(case.mask.packed.lengths())
    several: dict[str, Any] = {
        "heads_q": 3 * (group + 1) if group > 1 else 3,
        "heads_kv": 3,
        "batch": max(3, sequences + 1),  # of two the last one is the one behind the first as well
    }
    larger = [
        grown(case, rows, keys, regime="normal", seed=case.values.seed + 301 + number, **axes)
        for number, (rows, keys, axes) in enumerate(
            ((5, 7, {}), (18, 34, several), (3, 21, {"batch": several["batch"]}))
        )
    ]
    yield from (_with_other_numbers(each, number) for number, each in enumerate(larger) if each is not None)
    yield from larger
    yield grown(case, 0, 0, regime="normal", seed=case.values.seed + 305)


def _with_other_numbers(case: Case, number: int) -> Case | None:
    """The scale, the softcap, the dropout and the window changed."""
    changes: dict[str, Any] = {"scale": (0.8 + 0.15 * number) * case.softmax_scale}
    if case.logits.softcap:
        changes["logits"] = replace(case.logits, softcap=case.logits.softcap * (0.75 + 0.5 * number))
    if case.dropout:
        changes["dropout"] = (0.25, 0.375, 0.125)[number]
    if case.mask.window is not None:
        left, right = (None if side is None else side + 1 + number for side in case.mask.window)
        changes["mask"] = replace(case.mask, window=(left, right))
    try:
        return replace(case, **changes)
    except UsageError:
        return None
