"""Whether a formula that was read holds on the failing case and on fresh ones: other seeds, sizes, heads and numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.hypothesis import Semantics
from flashverify.diagnosis.neighbours import resized
from flashverify.diagnosis.related_cases import grown, variants
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.hypothesis import Alternative
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["confirmed"]

_CLEAR, _FRESH = 2, 5
"""Fresh cases that a formula must explain clearly, and fresh cases that must not contradict it."""
_PLACED_CLEAR, _PLACED = 3, 9
"""The same of a formula that holds at a place."""
_NUMBERS = count()
"""A scene keeps alternatives by the name of their semantics."""
_SIZES = ((140, 150), (40, 50), (64, 64), (128, 128), (20, 130), (96, 200), (130, 20), (150, 140))
"""Rows and keys of cases on which places of different sizes are different."""


def confirmed(
    trials: Trials,
    scene: Scene,
    output: str,
    build: Callable[[Scene], Iterator[Alternative]],
    *,
    placed: bool,
) -> bool | None:
    """None where a case contradicts it or too few could be tried; otherwise whether it says of every case that is right that it is right.

    Args:
        trials: runs of the subject.
        scene: the failing one.
        output: that is explained.
        build: what the formula expects on a case.
        placed: whether it holds at some pairs only.
    """
    only = frozenset({output})
    claim = Claim(Semantics(name=f"reading {next(_NUMBERS)}", sentence="", build=build, outputs=(output,)))
    if claim.answer(scene, only) not in (Answer.CLEAR, Answer.EXPLAINED):
        return None
    needed, enough = (_PLACED_CLEAR, _PLACED) if placed else (_CLEAR, _FRESH)
    answers: list[Answer] = []
    tried = {scene.case}
    for other in _fresh(trials, scene, placed):
        if other.case in tried:
            continue
        tried.add(other.case)
        answers.append(claim.answer(other, only))
        if answers[-1] is Answer.OTHERWISE:
            return None
        if answers.count(Answer.CLEAR) >= needed and len(answers) >= enough:
            break
    known = [each for each in trials.scenes.values() if each.case not in tried]
    answers += [claim.answer(each, only) for each in known]
    if Answer.OTHERWISE in answers or answers.count(Answer.CLEAR) < needed or len(answers) < enough:
        return None
    return Answer.RIGHT not in answers


def _fresh(trials: Trials, scene: Scene, placed: bool) -> Iterator[Scene]:
    case = scene.case
    sized = (resized(replace(case, values=replace(case.values, regime="normal", edits=())), *size) for size in _SIZES)
    sizes = [each for each in sized if each is not None]
    others = [each for each in _renumbered(case) if each is not None]
    if placed:
        return trials.of(
            chain(others[:2], sizes[:2], others[2:4], sizes[2:], others[4:], variants(trials.subject, case))
        )
    return trials.of(chain(others[:2], sizes[:1], others[2:], variants(trials.subject, case)))


def _renumbered(case: Case) -> Iterator[Case | None]:
    """Cases in which every number that a coefficient may be has changed."""
    group = case.heads_q // case.heads_kv
    several: dict[str, Any] = {"heads_q": 2 * (group + 1) if group > 1 else 2, "heads_kv": 2, "batch": case.batch + 1}
    larger = [
        grown(case, rows, keys, regime="normal", seed=case.values.seed + 301 + number, **axes)
        for number, (rows, keys, axes) in enumerate(((5, 7, {}), (18, 34, several), (3, 21, {"batch": 2})))
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
