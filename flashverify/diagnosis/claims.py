"""A claim: a kernel computes a wrong semantics at a place, and what a run says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from flashverify.diagnosis.expected import explains
from flashverify.diagnosis.kin import kin_of
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
        ways: details of alternatives that explain every case so far, of a semantics that is wrong in one way; None before the first one.
    """

    semantics: Semantics
    conditions: tuple[Condition, ...] = ()
    scope: frozenset[str] = frozenset()
    detail: str = ""
    ways: frozenset[str] | None = None

    @property
    def undetermined(self) -> bool:
        """Whether it has a number, and several numbers explain every case so far."""
        return self.semantics.one_way and self.ways is not None and len(self.ways) > 1

    def region(self, scene: Scene) -> Region:
        """Where it is computed."""
        key = ("region", self.conditions)
        if key not in scene.memo:
            scene.memo[key] = region_of(scene, self.conditions)
        region: Region = scene.memo[key]
        return region

    def answer(self, scene: Scene, outputs: frozenset[str] | None = None) -> Answer:
        """What `scene` says of it; the scope grows with what is explained.

        Args:
            scene: a run of the subject.
            outputs: whose failures count; None for all of them.
        """
        failing = {name: wrong for name, wrong in scene.failures.items() if outputs is None or name in outputs}
        region = self.region(scene)
        if region.nothing:
            return Answer.OTHERWISE if failing else Answer.SILENT
        names = frozenset(failing) | {name for name in self.scope if name in scene.outputs}
        if not names <= set(self.semantics.outputs):
            return Answer.OTHERWISE if failing else Answer.SILENT
        found = self._found(scene, names, region, bool(failing))
        if found is None:
            if failing:
                return Answer.EXPLAINED if self._of_kin(scene, names, region) else Answer.OTHERWISE
            # where it has no say, as without a part of the mask or with too few keys, it is right to be right
            return Answer.RIGHT if self._has_say(scene, names) else Answer.SILENT
        if not failing:
            return Answer.SILENT
        self.scope |= frozenset(failing)
        said = _said(found)
        self.detail = said if self.semantics.one_way else self.detail or said
        return Answer.CLEAR if _clear(scene, found, region) else Answer.EXPLAINED

    def _of_kin(self, scene: Scene, names: frozenset[str], region: Region) -> bool:
        """Whether a run is wrong in the way of another name of the same mistake, once this one has explained something."""
        return bool(self.scope) and any(
            names <= set(other.outputs) and agreeing(other, scene, names, region) is not None
            for other in kin_of(self.semantics.name)
        )

    def _has_say(self, scene: Scene, names: frozenset[str]) -> bool:
        """Whether it has something to be wrong about on a case, in one kernel of the outputs `names` at least."""
        return any(not names or names & set(each.outputs) for each in alternatives(self.semantics, scene))

    def _found(
        self, scene: Scene, names: frozenset[str], region: Region, failing: bool
    ) -> dict[frozenset[str], Alternative] | None:
        """What `agreeing` finds, in a way that explained every case so far; of a failing case the ways become fewer."""
        if not self.semantics.one_way:
            return agreeing(self.semantics, scene, names, region)
        built = {each.detail: None for each in alternatives(self.semantics, scene)}
        if not failing and self.ways is not None and not self.ways <= set(built):
            return {}  # one of its ways has nothing to be wrong about here
        ways = [way for way in built if self.ways is None or way in self.ways]
        found = {way: agreeing(self.semantics, scene, names, region, way) for way in ways}
        fits = {way: each for way, each in found.items() if each is not None}
        if failing and fits:
            self.ways = frozenset(fits)
        clear = (each for each in fits.values() if failing and _clear(scene, each, region))
        return next(clear, next(iter(fits.values()), None))


def agreeing(
    semantics: Semantics, scene: Scene, names: frozenset[str], region: Region, way: str | None = None
) -> dict[frozenset[str], Alternative] | None:
    """For each kernel of the outputs `names` an alternative that they agree with in `region`; None where there is none for one.

    Args:
        semantics: whose alternatives are asked.
        scene: a run of the subject.
        names: outputs.
        region: where the semantics is wrong.
        way: the detail that an alternative must have; None for any.
    """
    asked = [frozenset(part & names) for part in _KERNELS if part & names]
    found: dict[frozenset[str], Alternative] = {}
    for alternative in alternatives(semantics, scene):
        if way is not None and alternative.detail != way:
            continue
        for part in asked:
            if part not in found and part <= set(alternative.outputs) and agrees(scene, alternative, region, part):
                found[part] = alternative
        if len(found) == len(asked):
            return found
    return None


def _said(found: dict[frozenset[str], Alternative]) -> str:
    """The detail: that of the first kernel, or of each where they are about other things."""
    details = [each for each in found.values() if each.detail]
    apart = len({each.outputs for each in details}) > 1
    return " and ".join(dict.fromkeys(each.detail for each in (details if apart else details[:1])))


def _clear(scene: Scene, found: dict[frozenset[str], Alternative], region: Region) -> bool:
    for part, alternative in found.items():
        wrong = {name: scene.failures[name] for name in part if name in scene.failures}
        values = expected(scene, alternative, region, part) if wrong else {}
        if any(explains(values[n], scene.right[n], scene.outputs[n], w, clearly=True) for n, w in wrong.items()):
            return True
    return False
