"""What a failure looks like where no wrong semantics explains it: on which cases, at which places, and how its error grows."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.condition_words import has_words, part_words
from flashverify.diagnosis.conditions import in_words
from flashverify.diagnosis.dependence import Dependence
from flashverify.diagnosis.description.growth import growth
from flashverify.diagnosis.description.necessary import necessary
from flashverify.diagnosis.description.removals import needed
from flashverify.diagnosis.description.repeating import differing_calls, other_seeds
from flashverify.diagnosis.description.sizes_of_errors import size_of_errors
from flashverify.diagnosis.description.wrong_elements import as_if_on_related_cases
from flashverify.diagnosis.neighbours import neighbours, simplifications
from flashverify.diagnosis.places import features_of, region_of
from flashverify.diagnosis.placing import covering
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.settings import other_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["as_if_on_related_cases", "described"]

_SHARES = {"survey": 0.92, "conditions": 0.98, "growth": 1.0}
"""Of the time, at whose end each search begins nothing more."""
_SURVEYED = 40
"""Cases that differ from the failing one in one respect."""
_PLAIN = ("seq_q >= 1", "seq_k >= 1", "backward == yes")
"""Conditions that say no more than that there is something to be wrong."""
_SIZES: dict[str, Callable[[Scene], int]] = {
    "Sq is": lambda scene: scene.case.seq_q,
    "Sk is": lambda scene: scene.case.seq_k,
    "D is": lambda scene: scene.case.dim_qk,
}
_SMALLER = 2
"""Smaller cases that are right, for a smallest size to be said."""
_FEW = 3
"""Failing cases, on each of which a place is a part of the whole, from which on the place is named."""


def described(trials: Trials, scene: Scene, output: str) -> tuple[str, tuple[str, ...]]:
    """Sentences on the failure, and the conditions that were learned and tested, as text."""

    def label(other: Scene) -> bool:
        return bool(other.failures)

    supports = trials.subject.supports
    name = output if output in scene.failures else next(iter(scene.failures))
    surveyed = chain(
        other_settings(supports, scene.case),
        simplifications(supports, scene.case),
        islice(neighbours(supports, scene.case), _SURVEYED),
    )
    for _ in trials.of(surveyed, share=_SHARES["survey"]):
        pass
    removed = needed(trials, scene.case)
    dependence = Dependence(trials, label, _SHARES["conditions"])
    dependence.learn(scene.case, variants(trials.subject, scene.case))
    failing = [s for s in trials.scenes.values() if s.failures]
    right = [s for s in trials.scenes.values() if not s.failures]
    sentences = [f"{len(failing)} of {len(failing) + len(right)} related cases fail"]
    conditions: tuple[Condition, ...] = ()
    if dependence.tested and dependence.rule is not None and dependence.rule.conditions:
        conditions = dependence.rule.conditions
        told = [each for each in conditions if str(each) not in _PLAIN]
        sentences[0] += f": {in_words(told)}" if told else ""
    elif failing and right:
        sentences += _smallest(failing, right)
        without = necessary(trials, scene, _SHARES["conditions"], said=_features_said(scene, removed))
        if without is not None:
            sentences.append(
                f"Cases fail {in_words((without.condition,))}; all {without.without} others are right, and so are {without.right} of these"
            )
    place = _common_place(failing)
    if place is not None:
        conditions = (*conditions, place)
        sentences.append(f"Wrong elements are {in_words((place,))}")
    if removed:
        sentences.append(f"Failing cases are right without {', and without '.join(removed)}")
    sentences += _launches(trials, scene)
    sentences += size_of_errors(failing, name)
    sentences += _signs(failing, name)
    sentences += filter(
        None, (differing_calls(trials, _SHARES["growth"]), other_seeds(trials, scene.case, _SHARES["growth"]))
    )
    sentences += growth(trials, scene, name, _SHARES["growth"])
    return ". ".join(s[:1].upper() + s[1:] for s in sentences) + ".", tuple(map(str, conditions))


def _smallest(failing: list[Scene], right: list[Scene]) -> list[str]:
    """The smallest sizes that fail, where smaller ones are right."""
    found = []
    for words, size in _SIZES.items():
        least = min(size(scene) for scene in failing)
        smaller = [size(scene) for scene in right if size(scene) < least]
        if len(smaller) >= _SMALLER:
            found.append(f"{words} {least}")
    return [f"The smallest failing {', '.join(found)}"] if found else []


def _common_place(failing: list[Scene]) -> Condition | None:
    """The smallest place that holds every wrong element of every failing case on which it can be told; None where there is none."""
    found: dict[Condition, list[float]] = {}
    refuted: set[Condition] = set()
    for scene in failing[:12]:
        inside = dict(covering(scene))
        for place, region in inside.items():
            shares = [
                float(where.double().mean())
                for name, wrong in scene.failures.items()
                if (where := region.elements(name, wrong.shape)) is not None
            ]
            if shares:
                found.setdefault(place, []).append(sum(shares) / len(shares))
        refuted |= {place for place in found if place not in inside and not _whole(scene, place)}
    told = {place: sum(x) / len(x) for place, x in found.items() if place not in refuted and len(x) >= _FEW}
    best = min(told, key=lambda place: told[place], default=None)
    return best if best is not None and told[best] < 0.7 else None


def _whole(scene: Scene, place: Condition) -> bool:
    return region_of(scene, (place,)).everything


def _features_said(scene: Scene, removed: tuple[str, ...]) -> tuple[str, ...]:
    """Features of a case about which something is said as things that failing cases need."""
    return tuple(name for name in features_of(scene) if has_words(name) and part_words(name) in removed)


def _launches(trials: Trials, scene: Scene) -> list[str]:
    """Launch parameters with which the same case is right."""
    right = [
        ", ".join(f"{name} = {value}" for name, value in other.case.launch)
        for other in trials.scenes.values()
        if not other.failures and other.case.launch and replace(other.case, launch=scene.case.launch) == scene.case
    ]
    return [f"The same case is right with {' or with '.join(right[:3])}"] if right else []


def _signs(failing: list[Scene], name: str) -> list[str]:
    """Whether errors have one sign."""
    errors = []
    for scene in failing:
        if name in scene.failures:
            error = (scene.outputs[name] - scene.right[name].value)[scene.failures[name]]
            errors.append(error[torch.isfinite(error)])
    together = torch.cat(errors) if errors else torch.zeros(0)
    if len(together) < 20:
        return []
    up = float((together > 0).double().mean())
    if 0.1 < up < 0.9:
        return [f"The errors of {name} have both signs"]
    return [f"Nearly all errors of {name} are {'positive' if up > 0.5 else 'negative'}"]
