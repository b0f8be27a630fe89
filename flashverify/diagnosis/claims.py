"""A claim: a kernel computes a wrong semantics at a place, and what a run says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from flashverify.diagnosis.expected import explains
from flashverify.diagnosis.mixing import agrees, alternatives, expected
from flashverify.diagnosis.places import region_of
from flashverify.outputs import KERNELS

if TYPE_CHECKING:
    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.hypothesis import Alternative, Semantics
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.places import Region

__all__ = ["Answer", "Claim", "agreeing"]

_KERNELS = tuple(map(frozenset, KERNELS))
"""Outputs that are made together, for which a semantics must be wrong in one way."""


class Answer(Enum):
    """What one run says of a claim."""

    CLEAR = "it is wrong as the claim says, and its bounds are small beside the error"
    EXPLAINED = "it is wrong as the claim says"
    RIGHT = "it is right where the claim says that it is wrong"
    SILENT = "it is right, and the claim says so too"
    OTHERWISE = "it is wrong in another way"


@dataclass(slots=True)
class Claim:
    """A wrong semantics at a place.

    Attributes:
        semantics: the wrong semantics.
        conditions: on the case and on places in it, where it is computed; everywhere where there are none.
        scope: outputs that were explained so far.
        detail: of the alternative that explained the first case.
    """

    semantics: Semantics
    conditions: tuple[Condition, ...] = ()
    scope: frozenset[str] = frozenset()
    detail: str = ""

    def region(self, scene: Scene) -> Region:
        """Where it is computed."""
        key = ("region", self.conditions)
        if key not in scene.memo:
            scene.memo[key] = region_of(scene, self.conditions)
        region: Region = scene.memo[key]
        return region

    def answer(self, scene: Scene) -> Answer:
        """What `scene` says of it; the scope grows with what is explained."""
        failing = scene.failures
        region = self.region(scene)
        if region.nothing:
            return Answer.OTHERWISE if failing else Answer.SILENT
        names = frozenset(failing) | {name for name in self.scope if name in scene.outputs}
        if not names <= set(self.semantics.outputs):
            return Answer.OTHERWISE if failing else Answer.SILENT
        found = agreeing(self.semantics, scene, names, region)
        if found is None:
            if failing:
                return Answer.OTHERWISE
            # where it has no say, as without a part of the mask or with too few keys, it is right to be right
            return Answer.RIGHT if alternatives(self.semantics, scene) else Answer.SILENT
        if not failing:
            return Answer.SILENT
        self.scope |= frozenset(failing)
        self.detail = self.detail or next((a.detail for a in found.values() if a.detail), "")
        return Answer.CLEAR if _clear(scene, found, region) else Answer.EXPLAINED


def agreeing(
    semantics: Semantics, scene: Scene, names: frozenset[str], region: Region
) -> dict[frozenset[str], Alternative] | None:
    """For each kernel of the outputs `names` an alternative that they agree with in `region`; None where there is none for one."""
    asked = [frozenset(part & names) for part in _KERNELS if part & names]
    found: dict[frozenset[str], Alternative] = {}
    for alternative in alternatives(semantics, scene):
        for part in asked:
            if part not in found and agrees(scene, alternative, region, part):
                found[part] = alternative
        if len(found) == len(asked):
            return found
    return None


def _clear(scene: Scene, found: dict[frozenset[str], Alternative], region: Region) -> bool:
    for part, alternative in found.items():
        wrong = {name: scene.failures[name] for name in part if name in scene.failures}
        values = expected(scene, alternative, region, part) if wrong else {}
        if any(explains(values[n], scene.right[n], scene.outputs[n], w, clearly=True) for n, w in wrong.items()):
            return True
    return False
