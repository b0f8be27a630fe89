"""The simplest formulas that give every pair that was read."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.backward.clamps import clamps
from flashverify.diagnosis.readings.backward.dictionary import options
from flashverify.diagnosis.readings.backward.formulas import STEPS_OF
from flashverify.diagnosis.readings.backward.log_weights import logarithms
from flashverify.diagnosis.readings.backward.loop_factors import loop_factors
from flashverify.diagnosis.readings.backward.pair_places import Place, covering_places
from flashverify.diagnosis.readings.backward.quantity_factors import quantity_factors
from flashverify.diagnosis.readings.backward.quick_fits import may_fit
from flashverify.diagnosis.readings.backward.slope_fits import slope_fits
from flashverify.diagnosis.readings.backward.together import together
from flashverify.diagnosis.readings.backward.value_places import value_places
from flashverify.diagnosis.readings.backward.weighed_terms import weighed_terms
from flashverify.diagnosis.readings.masks.walks import walked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flashverify.diagnosis.readings.backward.fitting import Reading
    from flashverify.diagnosis.readings.backward.formulas import Formula
    from flashverify.diagnosis.readings.backward.variants import Option

__all__ = ["double_formulas", "formulas"]

_DOUBLE = 600
"""Pairs of variants that are tried."""
_NAMELESS = 2.0
"""Cost of a coefficient without a name."""
_LOCAL = 3
"""Rules for the wrong pairs are looked for first where fewer than one pair in so many is wrong."""


def formulas(reading: Reading, left: Callable[[], bool]) -> Iterator[Formula]:
    """Formulas that give everything that was read, the simplest first; none where it is as declared or cannot be told.

    Few pairs fit many formulas with a coefficient of their own: those come last where they have a place or another step.
    """
    contrived = []
    for formula in _formulas(reading, left):
        if (formula.changed or formula.place is not None) and any(each.cost >= _NAMELESS for each in formula.numbers):
            contrived.append(formula)
        else:
            yield formula
    yield from contrived


def _formulas(reading: Reading, left: Callable[[], bool]) -> Iterator[Formula]:
    if not reading.telling:
        return
    variants = options(reading.scene)
    plain, elsewhere = _single(reading, variants)
    placed = _at_places(reading, [{}, *plain], left)
    yield from _cheapest(reading, [*clamps(reading), *loop_factors(reading), *quantity_factors(reading)], None, left)
    local = _LOCAL * int(reading.wrong.sum()) < int(reading.asked.sum())
    if local:  # what is wrong everywhere is rarely right at most pairs
        yield from placed
    yield from _cheapest(reading, [{}, *plain, *elsewhere], None, left)
    yield from _cheapest(reading, slope_fits(reading), None, left)
    yield from _weighed(reading, left)
    yield from _cheapest(reading, [{"weights": each} for each in logarithms(reading)], None, left)
    yield from _cheapest(reading, list(together(reading.output, variants)), None, left)
    if not local:
        yield from placed


def double_formulas(reading: Reading, left: Callable[[], bool]) -> Iterator[Formula]:
    """Likewise, with two steps that have nothing in common exchanged."""
    if not reading.telling:
        return
    plain, elsewhere = _single(reading, options(reading.scene))
    single = plain + elsewhere
    double = [
        a | b for a, b in combinations(single, 2) if not a.keys() & b.keys() and not (_elsewhere(a) and _elsewhere(b))
    ]
    yield from _cheapest(reading, sorted(double, key=_elsewhere)[:_DOUBLE], None, left)


def _weighed(reading: Reading, left: Callable[[], bool]) -> Iterator[Formula]:
    """Formulas whose terms have weights of their own, in the order of their cost."""
    found: list[Formula] = []
    for trial in weighed_terms(reading.output, reading.scene, reading.steps):
        if not left():
            break
        found += reading.solutions(trial)
    yield from sorted(found, key=lambda each: each.cost)


def _single(
    reading: Reading, variants: dict[str, tuple[Option, ...]]
) -> tuple[list[dict[str, Option]], list[dict[str, Option]]]:
    """The variants of each step that the case shows, those that read at their own place and the others."""
    every = [(step, each) for step in STEPS_OF[reading.output] for each in variants[step] if reading.shows(step, each)]
    plain = [{step: each} for step, each in every if not each.elsewhere]
    return plain, [{step: each} for step, each in every if each.elsewhere]


def _at_places(reading: Reading, tried: list[dict[str, Option]], left: Callable[[], bool]) -> Iterator[Formula]:
    """Formulas that hold at the pairs of a rule, which holds every wrong pair."""
    walks = (Place(f"in {each.words}", each.where) for each in walked(reading.scene, reading.output))
    values = chain(value_places(reading.scene, reading.wrong, reading.asked), walks)
    for rules in covering_places(reading.scene, reading.wrong, reading.asked, values):
        plain = [{}] if rules[0].by_value and not _by_sign(rules[0]) else tried
        for formula in _cheapest(reading, plain, rules[0], left):
            places = (place for place in rules if not (formula.changed and place.by_value and not _by_sign(place)))
            yield from (replace(formula, place=place) for place in places)


def _by_sign(place: Place) -> bool:
    """Whether the number of a place is 0: kernels ask for signs more often than for other numbers."""
    return place.words.endswith((" below 0", " above 0"))


def _elsewhere(changed: dict[str, Option]) -> bool:
    return any(each.elsewhere for each in changed.values())


def _cheapest(
    reading: Reading, tried: Iterable[dict[str, Option]], place: Place | None, left: Callable[[], bool]
) -> Iterator[Formula]:
    """Formulas with some of these steps in the order of their cost."""
    found: list[Formula] = []
    for changed in may_fit(reading, tried, place, left):
        if not left():
            break
        found += reading.fits(changed, place)
    yield from sorted(found, key=lambda each: each.cost)
