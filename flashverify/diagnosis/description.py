"""What a failure looks like where no wrong semantics explains it: on which cases, at which places, and how its error grows."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.conditions import in_words
from flashverify.diagnosis.dependence import Dependence
from flashverify.diagnosis.growth import growth
from flashverify.diagnosis.neighbours import neighbours, simplifications
from flashverify.diagnosis.places import region_of
from flashverify.diagnosis.placing import covering
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.removals import needed
from flashverify.diagnosis.settings import other_settings

if TYPE_CHECKING:
    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["described"]

_SHARES = {"conditions": 0.97, "growth": 1.0}
_SURVEYED = 40
"""Cases that differ from the failing one in one respect."""
_PLAIN = ("seq_q >= 1", "seq_k >= 1", "backward == yes")
"""Conditions that say no more than that there is something to be wrong."""
_FEW = 3
"""Failing cases, on each of which a place is a part of the whole, from which on the place is named."""


def described(trials: Trials, scene: Scene, output: str) -> tuple[str, tuple[str, ...]]:
    """Sentences on the failure, and the conditions that were learned and tested, as text."""

    def label(other: Scene) -> bool:
        return bool(other.failures)

    supports = trials.subject.supports
    surveyed = chain(
        other_settings(supports, scene.case),
        simplifications(supports, scene.case),
        islice(neighbours(supports, scene.case), _SURVEYED),
    )
    for _ in trials.of(surveyed, share=_SHARES["conditions"]):
        pass
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
        sentences += _smallest(failing)
    place = _common_place(failing)
    if place is not None:
        conditions = (*conditions, place)
        sentences.append(f"Wrong elements are {in_words((place,))}")
    name = output if output in scene.failures else next(iter(scene.failures))
    sentences += _needed(trials, scene)
    sentences += _launches(trials, scene)
    sentences += _signs(failing, name)
    sentences += growth(trials, scene, name, _SHARES["growth"])
    return ". ".join(s[:1].upper() + s[1:] for s in sentences) + ".", tuple(map(str, conditions))


def _smallest(failing: list[Scene]) -> list[str]:
    cases = [scene.case for scene in failing]
    return [
        f"The smallest failing Sq is {min(c.seq_q for c in cases)}, Sk {min(c.seq_k for c in cases)}, "
        f"D {min(c.dim_qk for c in cases)}"
    ]


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


def _needed(trials: Trials, scene: Scene) -> list[str]:
    found = needed(trials, scene.case)
    return [f"Failing cases are right without {', and without '.join(found)}"] if found else []


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
