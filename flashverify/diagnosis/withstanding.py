"""Whether a name holds where it was not found: on cases that spread its mask over many tiles."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.hypotheses.where_masked import asked_in_some_tiles
from flashverify.diagnosis.mixing import agrees, alternatives, expected
from flashverify.diagnosis.stretching import stretched
from flashverify.outputs import FORWARD, KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.diagnosis.conditions import Condition
    from flashverify.diagnosis.hypothesis import Alternative
    from flashverify.diagnosis.naming import Named
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.places import Region
    from flashverify.diagnosis.trials import Trials

__all__ = ["withstood"]

_TILES = re.compile(r"\btiles? of \d+(?: rows)?(?: keys)?(?: and \d+ keys)?")
"""The size of a tile in the detail of an alternative."""

_PLACES = re.compile(r"\b(?:tiles?|walks?|parts?|partial|pieces?|splits?|pages?|blocks?|first|last|masks?)\b")
"""Words of a sentence about places."""
_AGAINST = (Answer.OTHERWISE, Answer.RIGHT)
_NEAR = 2.0**-8
"""Of the largest error, the most by which the values of a claim may miss what a large case holds."""
_MOST = 16
"""Alternatives that are asked about it."""


def withstood(trials: Trials, scene: Scene, found: Named | None) -> Named | None:
    """What explains `scene`, of the claims that hold on stretched cases too, with tiles of one size in each kernel; None where none does.

    A claim that names a size which these cases refute names theirs.
    """
    if found is None:
        return None
    asked = [claim for claim in found.claims if _is_of_places(claim, scene)]
    if not asked:
        return found
    scenes = list(trials.of(stretched(trials.subject.supports, scene.case)))
    kept = [_kept(claim, found.conditions, scenes) if claim in asked else claim for claim in found.claims]
    found.claims = [claim for claim in kept if claim is not None]
    return found if found.claims else None


def _kept(claim: Claim, conditions: tuple[Condition, ...], scenes: list[Scene]) -> Claim | None:
    """A claim that holds in all tiles, or, as of a kernel that asks its mask nowhere else, in those that need a mask; None where neither does."""
    asked = Claim(claim.semantics, conditions, claim.scope, ways=claim.ways)
    sizes = _standing(asked, scenes)
    if sizes is not None:
        claim.detail = _with_size(claim.detail, sizes)
        return claim
    if _size_in(claim.detail) or not claim.scope <= set(FORWARD):
        return None
    semantics = replace(claim.semantics, build=asked_in_some_tiles(claim.semantics.build))
    cut = Claim(semantics, conditions, claim.scope)
    for each in ([other for other in scenes if asked.answer(other) in _AGAINST], scenes):  # few suffice to refute it
        sizes = _standing(cut, each)
        if not sizes:
            return None
    words = f"only in {next(iter(sizes)) if sizes and len(sizes) == 1 else 'tiles'} that need a mask"
    claim.detail = ", ".join(filter(None, (claim.detail, words)))
    return claim


def _is_of_places(claim: Claim, scene: Scene) -> bool:
    """Whether a claim exchanges pairs, or speaks of tiles and the like: one about values alone says nothing of what more tiles do, as other numbers of splits."""
    if _PLACES.search(claim.semantics.sentence):
        return True
    found = alternatives(claim.semantics, scene)
    return any(_size_in(each.detail) or _exchanges_pairs(each, scene) for each in found)


def _exchanges_pairs(alternative: Alternative, scene: Scene) -> bool:
    return alternative.inputs is not None and alternative.inputs.visible is not scene.inputs.visible


def _standing(claim: Claim, scenes: list[Scene]) -> set[str] | None:
    """The sizes of tiles, in words, under which a claim holds on all scenes, of the first kernel that fails; None where it does not."""
    offered = [{_size_in(each.detail) for each in alternatives(claim.semantics, scene)} for scene in scenes]
    every = set().union(*offered)  # a scene of which it offers less, or nothing, is beyond what it can tell
    answers = [(scene, claim.answer(scene)) for scene, sizes in zip(scenes, offered, strict=True) if sizes]
    small = {id(scene) for scene, sizes in zip(scenes, offered, strict=True) if sizes < every}
    answers = [(scene, told) for scene, told in answers if id(scene) not in small or told is not Answer.OTHERWISE]
    if any(told is Answer.RIGHT or (told is Answer.OTHERWISE and not _is_near(claim, each)) for each, told in answers):
        return None
    scenes = [each for each, told in answers if told is not Answer.OTHERWISE]
    told = [_sizes(claim, scenes, frozenset(kernel)) for kernel in KERNELS]
    known = [sizes for sizes in told if sizes is not None]
    return next(iter(known), {""}) if all(known) else None


def _is_near(claim: Claim, scene: Scene) -> bool:
    """Whether a claim about values, not about pairs, misses them by far less than they are wrong: its bounds of a large case are too narrow."""
    region = claim.region(scene)
    of_values = [each for each in alternatives(claim.semantics, scene) if each.finish or each.given or each.steps]
    for kernel in KERNELS:
        names = scene.failures.keys() & set(kernel)
        able = [each for each in of_values if names <= set(each.outputs)][:_MOST]
        if names and not any(_comes_near(scene, each, region, frozenset(names)) for each in able):
            return False
    return True


def _comes_near(scene: Scene, alternative: Alternative, region: Region, names: frozenset[str]) -> bool:
    found = expected(scene, alternative, region, names)
    for name in names:
        if name not in found:
            return False
        got, wrong = scene.outputs[name], scene.failures[name]
        missed = ~found[name].holds(got, scene.free.get(name))
        error = (got - scene.right[name].value).abs()[wrong].amax()
        if not bool(((got - found[name].value).abs()[missed] <= _NEAR * error).all()):
            return False
    return True


def _sizes(claim: Claim, scenes: Iterable[Scene], kernel: frozenset[str]) -> set[str] | None:
    """The sizes of tiles, in words, under which a claim agrees with the outputs of a kernel on all scenes, right ones among them.

    The words are empty where the claim has no tiles. None where no scene fails in that kernel.
    """
    left: set[str] | None = None
    refuted: set[str] = set()
    for scene in scenes:
        region = claim.region(scene)
        names = frozenset(kernel & (claim.scope | scene.failures.keys()) & scene.outputs.keys())
        if region.nothing or not names:
            continue
        fits: dict[str, bool] = {}
        for each in alternatives(claim.semantics, scene):
            size = _size_in(each.detail)
            if names <= set(each.outputs) and not fits.get(size):
                fits[size] = agrees(scene, each, region, names)
        refuted |= {size for size, fit in fits.items() if not fit}
        if names & scene.failures.keys():
            found = {size for size, fit in fits.items() if fit}
            left = found if left is None else left & found
    return None if left is None else left - refuted


def _size_in(detail: str) -> str:
    return " ".join(_TILES.findall(detail))


def _with_size(detail: str, sizes: set[str]) -> str:
    """The detail with the one size that is left, where it says another one; without a size where several others are left."""
    said = _size_in(detail)
    if not said or said in sizes or len(_TILES.findall(detail)) > 1:
        return detail
    return _TILES.sub(next(iter(sizes)), detail) if len(sizes) == 1 else ""
