"""A wrong semantics at a place and the declared one elsewhere: what is then expected of each output."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative
from flashverify.outputs import BACKWARD

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations, Semantics
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.places import Region
    from flashverify.truth import Inputs

__all__ = ["agrees", "alternatives", "expected"]

_OF_PAIRS = ("visible", "biases", "keep")
_OF_KEYS = ("k", "v")


def alternatives(semantics: Semantics, scene: Scene) -> tuple[Alternative, ...]:
    """The alternatives of a semantics on a scene, built once."""
    key = ("alternatives", semantics.name, id(semantics))
    if key not in scene.memo:
        scene.memo[key] = tuple(semantics.build(scene))
    found: tuple[Alternative, ...] = scene.memo[key]
    return found


def agrees(scene: Scene, alternative: Alternative, region: Region, names: frozenset[str]) -> bool:
    """Whether the outputs `names` are what `alternative` expects in `region` and what is declared elsewhere."""
    if region.everything:
        return scene.agrees(alternative, names)
    if not _apart(scene, region, names) and (mixture := _mixed_pairs(scene, alternative, region)) is not None:
        return _reaches(scene, mixture, names) and scene.agrees(mixture, names)
    found = expected(scene, alternative, region, names)
    return all(n in found and bool(found[n].holds(scene.outputs[n], scene.free.get(n)).all()) for n in names)


def expected(scene: Scene, alternative: Alternative, region: Region, names: frozenset[str]) -> Expectations:
    """What is expected of the outputs `names`; those are missing of which it cannot be said.

    Outputs whose elements lie on one side each are exchanged element by element. Otherwise a mask or a bias is exchanged pair by pair, and
    a gradient that sums pairs on both sides of the border is the sum of two, each with dO on one side alone.
    """
    if region.everything:
        return scene.expect_once(alternative, names)
    if not _apart(scene, region, names) and (mixture := _mixed_pairs(scene, alternative, region)) is not None:
        return scene.expect(mixture, names)
    found: Expectations = {}
    both = []
    for name in names & scene.outputs.keys():
        where = region.elements(name, scene.outputs[name].shape)
        if where is not None:
            wrong = scene.expect_once(alternative, names).get(name)
            right = scene.declared((name,)).get(name)
            if wrong is not None and right is not None:
                found[name] = wrong.within(where, right)
        elif name in BACKWARD:
            both.append(name)
    if both and region.pairs.shape[3] == 1 and region.channels is None:
        found |= _summed(scene, alternative, region, frozenset(both))
    return found


def _apart(scene: Scene, region: Region, names: frozenset[str]) -> bool:
    """Whether each element of the outputs lies in the region or outside it."""
    return all(region.elements(n, scene.outputs[n].shape) is not None for n in names & scene.outputs.keys())


def _mixed_pairs(scene: Scene, alternative: Alternative, region: Region) -> Alternative | None:
    """The alternative with the declared mask and biases outside `region`; None where it differs in more than these."""
    if alternative.inputs is None or region.channels is not None:
        return None
    if alternative.finish or alternative.given or alternative.steps:
        return None
    wrong, right = alternative.inputs, scene.inputs
    moved = [f.name for f in fields(right) if getattr(wrong, f.name) is not getattr(right, f.name)]
    by_key = region.pairs.shape[1:3] == (1, 1)
    if any(name not in _OF_PAIRS and not (by_key and name in _OF_KEYS) for name in moved):
        return None
    return replace(alternative, inputs=_blend(wrong, right, region.pairs))


def _reaches(scene: Scene, mixture: Alternative, names: frozenset[str]) -> bool:
    """Whether a pair has changed in every row, and of every key, that is wrong."""
    assert mixture.inputs is not None
    changed = torch.zeros((1, 1, 1, 1), dtype=torch.bool)
    for name in _OF_KEYS:
        a, b = getattr(mixture.inputs, name), getattr(scene.inputs, name)
        if a is not b:
            changed = changed | (a != b).any(-1).repeat_interleave(scene.group, 1).unsqueeze(2)
    for name in ("visible", "keep"):
        a, b = getattr(mixture.inputs, name), getattr(scene.inputs, name)
        if a is not b:
            changed = changed | (a if b is None else a != b)
    if mixture.inputs.biases is not scene.inputs.biases:
        zero = torch.zeros((1, 1, 1, 1), dtype=torch.float64)
        changed = changed | (mixture.inputs.biases[0] != sum((b.double() for b in scene.inputs.biases), zero))
    changed = changed.expand(*scene.case.shape_q[:3], scene.case.seq_k)
    rows = changed.any(-1)
    for name in names & {"o", "lse"} & scene.failures.keys():
        wrong = scene.failures[name]
        if bool(((wrong.any(-1) if wrong.dim() == 4 else wrong) & ~rows).any()):
            return False
    return bool(rows.any())


def _blend(wrong: Inputs, right: Inputs, pairs: Tensor) -> Inputs:
    everything = torch.ones((), dtype=torch.bool)
    changed: dict[str, object] = {}
    for name in ("visible", "keep"):
        a, b = getattr(wrong, name), getattr(right, name)
        if a is not b:
            changed[name] = torch.where(pairs, everything if a is None else a, everything if b is None else b)
    if wrong.biases is not right.biases:
        zero = torch.zeros((), dtype=torch.float64)
        a, b = (sum((bias.double() for bias in each.biases), zero) for each in (wrong, right))
        changed["biases"] = (torch.where(pairs, a, b),)
    for name in _OF_KEYS:
        a, b = getattr(wrong, name), getattr(right, name)
        if a is not b:
            changed[name] = torch.where(pairs[:, :, 0, :, None], a, b)
    return replace(right, **changed)  # type: ignore[arg-type]


def _summed(scene: Scene, alternative: Alternative, region: Region, names: frozenset[str]) -> Expectations:
    """Gradients as the sum of those with dO inside the place, wrong, and outside it, right."""
    rows = region.pairs[..., 0]

    def of_rows(inputs: Inputs, chosen: Tensor) -> Inputs:
        assert inputs.do is not None
        dlse = None if inputs.dlse is None else inputs.dlse * chosen
        return replace(inputs, do=inputs.do * chosen.unsqueeze(-1), dlse=dlse)

    inside = scene.expect(replace(alternative, inputs=of_rows(alternative.inputs or scene.inputs, rows)), names)
    outside = scene.expect(Alternative(inputs=of_rows(scene.inputs, ~rows)), names)
    declared = scene.declared(tuple(names))
    return {name: inside[name].plus(outside[name], declared[name]) for name in names if name in inside}
