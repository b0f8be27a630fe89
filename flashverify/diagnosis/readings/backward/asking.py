"""The cases that a kernel is asked about pair by pair: usual ones, those of a large scale, and those with the values and sizes of failing ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.backward.probe import ask, asked_cases, with_own_values
from flashverify.diagnosis.related_cases import grown, peaked, variants
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.probe import Effect
    from flashverify.diagnosis.trials import Trials
    from flashverify.subjects.interface import Subject

__all__ = ["PAIRS", "effects"]

PAIRS = (60, 40_000)
"""Fewest and most pairs of a case that is asked, where there is one."""
_LARGER = (130, 140)
"""Rows and keys by which a case grows beyond any tile."""
_WIDER = (20, 40)
"""The same of a case with the values of the failing one."""
_FEW = 8
"""Rows or keys up to which the other side alone is made larger too: their number may be what matters."""
_LONGER = 40
_USUAL, _OWN = 2, 3
"""Cases of usual values that are asked first, and of the values of failing cases: a number in the code may show on these alone."""


def effects(trials: Trials, scene: Scene) -> Iterator[Effect]:
    """What is read of cases like the failing one on which something is read, those with enough pairs first.

    Args:
        trials: runs of the subject.
        scene: a failing one.
    """
    for asked in _cases(trials, scene):
        if not trials.left():
            return
        try:
            effect = ask(trials.subject, scene, asked, trials.left)
        except Exception:  # a defect may raise on other cases; those say nothing
            effect = None
        if effect is not None:
            yield effect


def _cases(trials: Trials, scene: Scene) -> list[Case]:
    subject, case = trials.subject, scene.case
    failing = [other.case for other in trials.scenes.values() if other.failures.keys() & scene.failures.keys()]
    others = list(islice(variants(subject, case), 6))
    low, high = PAIRS
    sizes = {each: work(each) for each in (case, *failing, *others)}
    fitting = sorted((each for each in sizes if low <= sizes[each] <= high), key=lambda each: sizes[each])
    large = grown(case, *_LARGER, regime="normal", seed=case.values.seed)
    chosen = [*fitting[:1], *([] if large is None or work(large) > high else [large]), case, *fitting[1:]]
    chosen = list(dict.fromkeys(chosen))
    every = [list(asked_cases(subject, each)) for each in chosen]
    usual = [each[0] for each in every if each]
    steep = [next(asked_cases(subject, each), each) for each in peaked(subject, case)]
    wide = grown(case, *_WIDER, regime=case.values.regime, seed=case.values.seed)
    kept = chosen if wide is None else [wide, *chosen]
    own = [each for other in kept if (each := with_own_values(subject, other)) is not None]
    long = [each for other in _longer(case) for each in islice(asked_cases(subject, other), 1)]
    # another head dim of a case tells less than another case
    narrow = [each[1] for each in every if len(each) > 1]
    usual[:1] = [_with_dlse(subject, each) for each in usual[:1]]
    return list(dict.fromkeys((*usual[:_USUAL], *steep, *long, *own[:_OWN], *usual[_USUAL:], *narrow)))


def _with_dlse(subject: Subject, case: Case) -> Case:
    """The case with a gradient through the LSE, where the subject takes one: without it nothing is read of what stands in its place."""
    other = replace(case, grad=replace(case.grad, dlse=True))
    return other if subject.supports.refusal(other) is None else case


def _longer(case: Case) -> Iterator[Case]:
    """The case with more rows, or with more keys, and few of the other side."""
    for few, more in ((case.seq_k, (_LONGER, 0)), (case.seq_q, (0, _LONGER))):
        found = grown(case, *more, regime="normal", seed=case.values.seed + 71) if few <= _FEW else None
        if found is not None:
            yield found
