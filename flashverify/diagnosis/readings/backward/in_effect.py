"""What the backward of a kernel computes, in words: formulas read pair by pair and tried on fresh cases."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.backward.confirming import confirmed
from flashverify.diagnosis.readings.backward.elsewhere import places_elsewhere
from flashverify.diagnosis.readings.backward.fitting import Reading, formulas
from flashverify.diagnosis.readings.backward.probe import ask, asked_cases
from flashverify.diagnosis.readings.backward.row_readings import OF_ROWS, row_formulas
from flashverify.diagnosis.readings.backward.wording import sentences
from flashverify.diagnosis.related_cases import grown, variants
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.hypothesis import Alternative
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.elsewhere import Elsewhere
    from flashverify.diagnosis.readings.backward.formulas import Formula
    from flashverify.diagnosis.readings.backward.probe import Effect
    from flashverify.diagnosis.readings.backward.row_readings import RowFormula
    from flashverify.diagnosis.trials import Trials

__all__ = ["gradients_in_effect"]

_READ = ("dq", "dk", "dv", "dbias")
_TRIED = 12
"""Formulas of one output that are tried on fresh cases."""
_ASKED = 4
"""Cases that are asked pair by pair."""
_LARGER = (130, 140)
"""Rows and keys by which a case grows beyond any tile."""
_PAIRS = (60, 40_000)
"""Fewest and most pairs of a case that is asked, where there is one."""


def gradients_in_effect(trials: Trials, scene: Scene) -> tuple[str, ...]:
    """Sentences on what the backward computes in place of what is declared; none where that cannot be said.

    Every one was true of `scene` and of fresh cases of other seeds and sizes: each wrong element was within the bounds of the formula.

    Args:
        trials: runs of the subject.
        scene: a failing one.
    """
    outputs = [name for name in _READ if name in scene.failures]
    if not scene.failures.keys() & {*_READ, *OF_ROWS} or scene.case.quantised is not None or scene.inputs.do is None:
        return ()
    moved = dict(_elsewhere(trials, scene, outputs))
    outputs = [name for name in outputs if name not in moved]
    found: dict[str, tuple[Formula, bool]] = {}
    for effect in islice(_effects(trials, scene) if outputs else (), _ASKED):
        for name in outputs:
            if name not in found and name in effect.read:
                answer = _confirmed(trials, scene, effect, name)
                if answer is not None:
                    found[name] = answer
        if len(found) == len(outputs):
            break
    return (*moved.values(), *sentences(found, scene), *_of_rows(trials, scene))


def _elsewhere(trials: Trials, scene: Scene, outputs: list[str]) -> Iterator[tuple[str, str]]:
    """Outputs that are right at another place, each with its sentence."""
    for name in outputs:
        for each in places_elsewhere(scene, name):
            if trials.left() and confirmed(trials, scene, name, _build(each), placed=False):
                yield name, each.words()
                break


def _of_rows(trials: Trials, scene: Scene) -> Iterator[str]:
    """Sentences on delta and on the gradient of the sinks, where they are returned and wrong."""
    for name in OF_ROWS:
        if name not in scene.failures:
            continue
        for formula in islice(row_formulas(scene, name, trials.left), _TRIED):
            if confirmed(trials, scene, name, _build(formula), placed=False):
                yield formula.words(scene.inputs.dlse is not None)
                break


def _effects(trials: Trials, scene: Scene) -> Iterator[Effect]:
    """What is read of cases like the failing one on which something is read, those with enough pairs first."""
    failing = [other.case for other in trials.scenes.values() if other.failures.keys() & scene.failures.keys()]
    others = list(islice(variants(trials.subject, scene.case), 6))
    low, high = _PAIRS
    sizes = {case: work(case) for case in (scene.case, *failing, *others)}
    fitting = sorted((case for case in sizes if low <= sizes[case] <= high), key=lambda each: sizes[each])
    large = grown(scene.case, *_LARGER, regime="normal", seed=scene.case.values.seed)
    chosen = [*fitting[:1], *([] if large is None or work(large) > high else [large]), scene.case, *fitting[1:]]
    for case in dict.fromkeys(chosen):
        for asked in asked_cases(trials.subject, case):
            if not trials.left():
                return
            try:
                effect = ask(trials.subject, scene, asked, trials.left)
            except Exception:  # a defect may raise on other cases; those say nothing
                effect = None
            if effect is not None:
                yield effect


def _confirmed(trials: Trials, scene: Scene, effect: Effect, name: str) -> tuple[Formula, bool] | None:
    """The first formula that the failing case and fresh cases confirm, and whether none of them is right where it says that it is wrong."""
    second = None
    for formula in islice(formulas(Reading(effect, name), trials.left), _TRIED):
        if second is not None and formula.differences() != second.differences():
            break  # only another place of the same formula may say more
        always = confirmed(trials, scene, name, _build(formula), placed=formula.place is not None)
        if always:
            return formula, True
        if always is not None and second is None:
            second = formula
    return None if second is None else (second, False)


def _build(formula: Formula | RowFormula | Elsewhere) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        found = formula.alternative(scene)
        if found is not None:
            yield found

    return build
