"""What the backward of a kernel computes, in words: formulas read pair by pair and tried on fresh cases."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.backward.any_tile import of_each_size, without_size
from flashverify.diagnosis.readings.backward.asking import PAIRS, effects
from flashverify.diagnosis.readings.backward.bucket_additions import bucket_additions
from flashverify.diagnosis.readings.backward.bucket_readings import bucket_formulas
from flashverify.diagnosis.readings.backward.confirming import confirmed
from flashverify.diagnosis.readings.backward.elsewhere import places_elsewhere
from flashverify.diagnosis.readings.backward.fitting import Reading
from flashverify.diagnosis.readings.backward.head_mixtures import HeadMixture, head_mixtures
from flashverify.diagnosis.readings.backward.learned import UNKNOWN, reservation
from flashverify.diagnosis.readings.backward.limits import Limited, limits
from flashverify.diagnosis.readings.backward.proportions import Scaled, scaled
from flashverify.diagnosis.readings.backward.row_readings import OF_ROWS, row_formulas
from flashverify.diagnosis.readings.backward.simplest import double_formulas, formulas
from flashverify.diagnosis.readings.backward.sink_readings import sink_formulas
from flashverify.diagnosis.readings.backward.sum_numbers import numbered_sums
from flashverify.diagnosis.readings.backward.sum_readings import OF_SUMS, SumFormula, is_shared_bias, sum_formulas
from flashverify.diagnosis.readings.backward.sum_weights import WeighedSum, weighed_sums
from flashverify.diagnosis.readings.backward.wording import sentences
from flashverify.diagnosis.readings.fresh import scenes_of
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from flashverify.diagnosis.hypothesis import Alternative
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.bucket_additions import BucketAddition
    from flashverify.diagnosis.readings.backward.bucket_readings import BucketFormula
    from flashverify.diagnosis.readings.backward.elsewhere import Elsewhere
    from flashverify.diagnosis.readings.backward.formulas import Formula
    from flashverify.diagnosis.readings.backward.row_readings import RowFormula
    from flashverify.diagnosis.readings.backward.sink_readings import SinkFormula
    from flashverify.diagnosis.readings.backward.sum_numbers import NumberedSum
    from flashverify.diagnosis.trials import Trials

    _Search = Callable[[Reading, Callable[[], bool]], Iterator[Formula]]
    _Direct = Elsewhere | HeadMixture | Limited | Scaled
    _OfSums = (
        SumFormula | NumberedSum | RowFormula | SinkFormula | BucketFormula | BucketAddition | WeighedSum | HeadMixture
    )

__all__ = ["gradients_in_effect", "no_mask"]

_READ = ("dq", "dk", "dv", "dbias")
_TRIED = 30
"""Formulas of one output that are tried on fresh cases."""
_LISTED = 150
"""Formulas of dS that are looked at: the runs that there are refute most of them at once."""
_SUMS = 24
"""Likewise of places of a sum: on one case several rules give the same rows."""
_PARTIAL = 6
"""Formulas of a sum that some cases are right in spite of, after which none is looked for that no case is."""
_ASKED, _MOST_ASKED = 4, 10
"""Cases that are asked pair by pair: those that show enough wrong pairs, and all."""
_MORE_PARTS = "; cases that have more parts are wrong in another way as well"
_LOOKED_AT, _MOST = 2, 0.8
"""Cases that are asked whether pairs are missing, and the share of the wrong ones that are not from which on none is said to be."""
_ENOUGH = 2_000
"""Pairs from which on a case tells no more by having more."""


def gradients_in_effect(trials: Trials, scene: Scene, *, briefly: bool = False) -> tuple[str, ...]:
    """Sentences on what the backward computes in place of what is declared; none where that cannot be said.

    Every one was true of `scene` and of fresh cases of other seeds and sizes: each wrong element was within the bounds of the formula.

    Args:
        trials: runs of the subject.
        scene: a failing one.
        briefly: whether the first case that shows enough wrong pairs is asked alone, and nothing is said unless every wrong output is
            explained, or where pairs are missing or hidden ones there, and nothing else is wrong.
    """
    scene = _widest(trials, scene)
    outputs = [name for name in _READ if name in scene.failures]
    if "dq" not in outputs and is_shared_bias(scene):  # a sum of what dQ shows to be right
        outputs = [name for name in outputs if name != "dbias"]
    if (
        not scene.failures.keys() & {*_READ, *OF_ROWS, *OF_SUMS}
        or scene.case.quantised is not None
        or scene.inputs.do is None
    ):
        return ()
    moved = dict(_elsewhere(trials, scene, outputs))
    outputs = [name for name in outputs if name not in moved]
    found: dict[str, tuple[Formula, str]] = {}
    readings: list[Reading] = []
    telling = 0
    for effect in islice(effects(trials, scene) if outputs else (), _MOST_ASKED):
        new = [Reading(effect, name) for name in outputs if name not in found and name in effect.read]
        readings += new
        telling += any(reading.telling for reading in new)
        if briefly and all(reading.in_part == 0 for reading in new if reading.telling) and telling:
            return ()  # pairs are there or not: what counts masks says which
        for reading in new:
            _take(found, trials, scene, reading, formulas)
        if len(found) == len(outputs) or telling == (1 if briefly else _ASKED):
            break
    if briefly:
        whole = len(found) == len(outputs) and not any(UNKNOWN in when for _, when in found.values())
        return (*moved.values(), *sentences(found, scene)) if whole else ()
    for reading in readings:  # dear, and rarely of use: where no case shows a simpler one
        _take(found, trials, scene, reading, double_formulas)
    return (*moved.values(), *sentences(found, scene), *_of_rows(trials, scene, found.keys() | moved.keys()))


def no_mask(trials: Trials, scene: Scene) -> bool:
    """Whether most wrong pairs of a gradient are there, with another value: no pair that is missing or hidden, as under a wrong mask."""
    outputs = [name for name in _READ[:3] if name in scene.failures]
    if not outputs or scene.case.quantised is not None or scene.inputs.do is None:
        return False
    for effect in islice(effects(trials, scene), _LOOKED_AT):
        found = [Reading(effect, name) for name in outputs if name in effect.read]
        if found and all(reading.telling for reading in found):
            return all(reading.in_part > _MOST for reading in found)
    return False


def _take(
    found: dict[str, tuple[Formula, str]], trials: Trials, scene: Scene, reading: Reading, search: _Search
) -> None:
    """Adds the first confirmed formula of an output of which there is none."""
    if reading.output not in found and trials.left():
        answer = _confirmed(trials, scene, reading, search(reading, trials.left))
        if answer is not None:
            found[reading.output] = answer


def _widest(trials: Trials, scene: Scene) -> Scene:
    """The run in which most outputs fail, those of `scene` among them: zeros hide a wrong step from some."""
    made = [each for each in trials.scenes.values() if scene.failures.keys() < each.failures.keys()]
    return max(made, key=lambda each: (len(each.failures), -work(each.case)), default=scene)


def _elsewhere(trials: Trials, scene: Scene, outputs: list[str]) -> Iterator[tuple[str, str]]:
    """Outputs that are right at another place, or but for a limit, each with its sentence."""
    for name in outputs:
        search = (limits, scaled, places_elsewhere, head_mixtures)
        direct: list[Iterator[_Direct]] = [each(scene, name) for each in search]
        tried: Iterator[_Direct] = chain.from_iterable(direct)
        for each in tried:
            of_value = isinstance(each, Limited)
            held = (
                confirmed(trials, scene, name, _build(each), placed=of_value, by_value=of_value)
                if trials.left()
                else None
            )
            if held is not None and held.always:
                yield name, each.words() + _MORE_PARTS * held.otherwise
                break


def _of_rows(trials: Trials, scene: Scene, read: Collection[str]) -> Iterator[str]:
    """Sentences on delta and on gradients that are sums over rows or pairs, where they are returned and wrong and nothing was read of them."""
    for name in OF_SUMS:
        if name not in scene.failures or name in read or (name == "drelative_bias" and "dq" in scene.failures):
            continue  # a table is a sum of the dS that dQ shows
        said, second, partial = "", None, 0
        start = _telling(trials, scene, name)
        sums = islice(sum_formulas(start, name, trials.left), _SUMS)
        rows = islice(row_formulas(start, name, trials.left) if name in OF_ROWS else (), _TRIED)
        sinks = islice(sink_formulas(start, name, trials.left), _TRIED)
        numbered = islice(numbered_sums(start, name), _TRIED)
        weighed = islice(weighed_sums(start, name), _TRIED)
        mixed = islice(head_mixtures(start, name), _TRIED)
        buckets, added = bucket_formulas(start, name), bucket_additions(start, name)
        tried: Iterator[_OfSums] = chain(numbered, mixed, sums, weighed, rows, sinks, buckets, added)
        for formula in tried:
            placed = isinstance(formula, SumFormula)
            by_value = isinstance(formula, SumFormula) and formula.place.by_value
            held = confirmed(trials, start, name, _build(formula), placed=placed, by_value=by_value)
            if held is not None and held.always:
                said = formula.words(scene.inputs.dlse is not None) + _MORE_PARTS * held.otherwise
                break
            if held is not None:
                second, partial = second or (formula, held), partial + 1
            if partial > _PARTIAL:  # a small case does not tell them apart
                break
        if not said and second is not None:
            formula, held = second
            when = reservation(trials, start, name, _build(formula), held)
            said = formula.words(scene.inputs.dlse is not None) + when
        if said:
            yield said


def _telling(trials: Trials, scene: Scene, name: str) -> Scene:
    """A failing run with several rows, of those that were made if there is one."""
    low, high = PAIRS
    made = [each for each in trials.scenes.values() if name in each.failures and low <= work(each.case) <= high]
    if not made:
        made = scenes_of(trials, scene, frozenset({name}))[:1]

    def tells(each: Scene) -> tuple[bool, int, int]:
        pairs = work(each.case)
        return each.case.values.regime == "normal", min(pairs, _ENOUGH), -pairs

    return max(made, key=tells, default=scene)


def _confirmed(trials: Trials, scene: Scene, read: Reading, tried: Iterator[Formula]) -> tuple[Formula, str] | None:
    """The first formula that the failing case and fresh cases confirm, with its reservation: one without any before the others."""
    second = None
    for formula in islice(tried, _LISTED):
        if second is not None and formula.differences() != second[0].differences():
            break  # only another place of the same formula may say more
        held = confirmed(
            trials, scene, formula.output, _build(formula), placed=formula.place is not None, by_value=formula.by_value
        )
        sizes = of_each_size(formula, read.scene) if held is None else []
        if sizes and trials.left():
            held = confirmed(trials, scene, formula.output, _build(*sizes), placed=formula.place is not None)
            formula = without_size(formula)
        if held is not None and held.always:
            return formula, _MORE_PARTS * held.otherwise
        if held is not None and second is None:
            second = formula, sizes, held
    if second is None:
        return None
    formula, sizes, held = second
    return formula, reservation(trials, scene, formula.output, _build(*(sizes or (formula,))), held)


def _build(
    *formulas: Formula | _OfSums | _Direct,
) -> Callable[[Scene], Iterator[Alternative]]:
    """The alternatives of one formula, or of several of which any may hold on a case."""

    def build(scene: Scene) -> Iterator[Alternative]:
        for each in formulas:
            found = each.alternative(scene)
            if found is not None:
                yield found

    return build
