"""How well a model of rounding predicts the error of each element."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.precision.backward import backward
from flashverify.diagnosis.precision.emulation import forward
from flashverify.diagnosis.precision.flat_slopes import without_slope
from flashverify.diagnosis.precision.models import TILES, Model, models
from flashverify.diagnosis.precision.rounding import same
from flashverify.diagnosis.precision.steps import declared
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.steps import Steps

__all__ = ["Fit", "asked", "best", "contradicted", "declared_share", "lost", "predicted", "small", "told"]

_EXPLAINED = 0.75
"""Share of the squared error that a model must explain, on each case."""
_CLEAR = 0.6
"""What the best one leaves must be at most so much of what the next one leaves; else both are named."""
_LARGEST_ERROR = 0.05
"""Share of the squared size of an output up to which its error counts as one of precision."""
_ACTS = 1e-3
"""A model that moves an output by less than this share of its error says nothing."""
_ELEMENTS = 5.0
"""Elements, in effect, over which the errors of all runs must be spread."""
_NEARER = 1.1
"""A right output whose squared distance from a model is more than so many times that from what is declared contradicts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A model and how it does.

    Attributes:
        words: the model's.
        explained: the least share of the squared error that it explains.
        ratio: size of the error beside that of the model's, of the last case.
        tile: keys or rows of its tiles; None for all at once.
        model: that does so.
        finer: the kernel's weights and dS are in fp32 else, although its form allows that they are rounded.
    """

    words: str
    explained: float
    ratio: float
    tile: int | None
    model: Model
    finer: bool


def asked(scene: Scene, name: str) -> Tensor:
    """Bool: the elements of an output of which something finite is asked, and that are finite."""
    right, got = scene.right[name], scene.outputs[name]
    found = torch.isfinite(right.value) & torch.isfinite(right.total) & (right.total > 0) & torch.isfinite(got)
    return found & ~scene.free[name] if name in scene.free else found


def lost(scene: Scene, name: str) -> bool:
    """Whether an element of an output is not finite that must be."""
    found = torch.isfinite(scene.right[name].value) & ~torch.isfinite(scene.outputs[name])
    return bool((found & ~scene.free[name] if name in scene.free else found).any())


def small(scene: Scene, names: frozenset[str]) -> bool:
    """Whether every failing output is finite and about right, so that precision is the question."""
    for name in names:
        if lost(scene, name):
            return False
        got, value = scene.outputs[name], scene.right[name].value
        known = asked(scene, name)
        if float(((got - value)[known] ** 2).sum()) > _LARGEST_ERROR * float((value[known] ** 2).sum()):
            return False
    return True


def predicted(scene: Scene, steps: Steps, names: frozenset[str]) -> dict[str, Tensor]:
    """What a kernel with these steps returns, of the outputs `names` at least."""
    found = forward(scene, steps) if names & set(FORWARD) else {}
    return found | (backward(scene, steps, names) if names - set(FORWARD) else {})


def _share(
    scene: Scene, wrong: dict[str, Tensor], right: dict[str, Tensor], names: frozenset[str]
) -> tuple[float, float]:
    """The share of the squared error that a model explains, the least of all outputs, and the size of the error beside the model's."""
    shares, ratios = [], []
    for name in names:
        if name not in wrong:
            return -math.inf, math.nan
        error, model = ((x - right[name]) / scene.right[name].total for x in (scene.outputs[name], wrong[name]))
        known = asked(scene, name) & torch.isfinite(error) & torch.isfinite(model)
        whole = float((error[known] ** 2).sum())
        moved = float((model[known] ** 2).sum())
        if not whole and not moved:
            continue
        if not whole or moved < _ACTS * whole:
            return -math.inf, math.nan
        shares.append(1.0 - float(((error - model)[known] ** 2).sum()) / whole)
        ratios.append(math.sqrt(whole / moved))
    return (min(shares), ratios[0]) if shares else (-math.inf, math.nan)


def told(scenes: list[Scene], names: frozenset[str]) -> bool:
    """Whether the errors lie in more than a few elements, so that what predicts them is no chance."""
    found = dict.fromkeys(names, 0.0)
    for scene in scenes:
        for name in names & scene.outputs.keys():
            error = ((scene.outputs[name] - scene.right[name].value) / scene.right[name].total)[asked(scene, name)]
            squares = error[torch.isfinite(error)] ** 2
            found[name] += float(squares.sum() ** 2 / (squares**2).sum().clamp(min=1e-300))
    return min(found.values()) >= _ELEMENTS


def _agrees(scene: Scene, wrong: dict[str, Tensor], right: dict[str, Tensor], names: frozenset[str]) -> bool:
    """Whether a run speaks not against a model: most of what fails is explained, and what is right is not nearer to what is declared."""
    for name in names & scene.outputs.keys():
        if name not in wrong:
            continue
        got, expected = scene.outputs[name], scene.right[name]
        off, before = (got - wrong[name]).abs(), (got - expected.value).abs()
        if name in scene.failures:
            close = (off <= torch.maximum(expected.total, before / 2)) | ~torch.isfinite(wrong[name])
            if float(close[scene.failures[name]].double().mean()) < _EXPLAINED:
                return False
            continue
        known = asked(scene, name) & torch.isfinite(wrong[name])
        error, left = (((got - x[name]) / expected.total)[known] for x in (right, wrong))
        if float((left**2).sum()) > _NEARER * float((error**2).sum()):
            return False
    return True


def declared_share(scenes: list[Scene], name: str) -> float:
    """The least share of the squared error of an output that its declared roundings predict, under the best width of tiles."""
    return max(min(_share_declared(scene, name, tile) for scene in scenes) for tile in TILES)


def _share_declared(scene: Scene, name: str, tile: int | None) -> float:
    found = predicted(scene, _tiled(declared(scene), tile), frozenset({name}))
    if name not in found:
        return 0.0
    error, model = ((x - scene.right[name].value) / scene.right[name].total for x in (scene.outputs[name], found[name]))
    known = asked(scene, name) & torch.isfinite(error) & torch.isfinite(model)
    whole = float((error[known] ** 2).sum())
    return 1.0 - float(((error - model)[known] ** 2).sum()) / whole if whole else 0.0


def best(scenes: list[Scene], names: frozenset[str], deadline: End, others: tuple[Scene, ...] = ()) -> list[Fit]:
    """The models that predict the errors of the outputs `names` on every scene, best first: one, or those that cannot be told apart.

    Args:
        scenes: failing runs that show the errors, element by element.
        names: of outputs that are made together.
        deadline: after which no further model is tried.
        others: runs of other cases, right and failing, that must not contradict a model.
    """
    rounded = scenes[0].case.dtype != "fp32" and bool(names & {"o", "dq", "dk", "dv"})
    fits: list[Fit] = []
    for finer in (False, True) if rounded else (False,):
        if not fits:
            fits = _fits(scenes, names, deadline, finer)
    fits.sort(key=lambda fit: -fit.explained)
    fits = [fit for fit in fits if not contradicted(fit.model.change, fit.tile, names, others, finer=fit.finer)]
    fits = [fit for fit in fits if not without_slope(fit.model.change, _runs(fit, scenes, names))]
    if not fits:
        return []
    left = max(1.0 - fits[0].explained, 1e-3)
    near = {fit.words: fit for fit in reversed(fits) if left > _CLEAR * (1.0 - fit.explained)}
    found = list(near.values())[::-1]
    return [fit for fit in found if not fit.model.several] or found


def _runs(fit: Fit, scenes: list[Scene], names: frozenset[str]) -> Iterator[tuple[Steps, Callable[[Steps], float]]]:
    for scene in scenes:
        plain = _plain(scene, fit.tile, fit.finer)
        yield plain, partial(_explained, scene, predicted(scene, plain, names), names)


def _explained(scene: Scene, right: dict[str, Tensor], names: frozenset[str], steps: Steps) -> float:
    return _share(scene, predicted(scene, steps, names), right, names)[0]


def _fits(scenes: list[Scene], names: frozenset[str], deadline: End, finer: bool) -> list[Fit]:
    form = scenes[0].form
    known = form.block_n is not None and bool(names & set(FORWARD))  # no form says the tiles of the backward
    tiles = (form.block_n,) if known else TILES
    weights_are_rounded = scenes[0].case.dtype != "fp32" and not finer and "o" in names
    rights: dict[tuple[int, int | None], dict[str, Tensor]] = {}
    fits: list[Fit] = []
    for model in models(scenes[0]):
        if not names <= set(model.outputs) or deadline.over:
            continue
        for tile in tiles if model.tiled or weights_are_rounded else tiles[:1]:
            if model.addend and tile is None:
                continue
            fit = _fit(model, tile, finer, scenes, names, rights)
            if fit is not None:
                fits.append(fit)
    return fits


def contradicted(
    change: Callable[[Steps], Steps],
    tile: int | None,
    names: frozenset[str],
    others: tuple[Scene, ...],
    *,
    finer: bool = False,
) -> bool:
    """Whether a run of another case speaks against a change of the declared steps; with `finer`, of those whose weights and dS are in fp32."""
    for scene in others:
        plain = _plain(scene, tile, finer)
        if not _agrees(scene, predicted(scene, change(plain), names), predicted(scene, plain, names), names):
            return True
    return False


def _plain(scene: Scene, tile: int | None, finer: bool) -> Steps:
    steps = _tiled(declared(scene), tile)
    if not finer:
        return steps
    return dataclasses.replace(
        steps, ds=same, p=steps.p if scene.form.p_dtype else same
    )  # a cast to 8 bits is no choice


def _tiled(steps: Steps, tile: int | None) -> Steps:
    return dataclasses.replace(steps, tile=tile)


def _fit(
    model: Model,
    tile: int | None,
    finer: bool,
    scenes: list[Scene],
    names: frozenset[str],
    rights: dict[tuple[int, int | None], dict[str, Tensor]],
) -> Fit | None:
    worst, ratio = 1.0, math.nan
    for number, scene in enumerate(scenes):
        plain, key = _plain(scene, tile, finer), (number, tile)
        if key not in rights:
            rights[key] = predicted(scene, plain, names)
        wrong = predicted(scene, model.change(plain), names)
        share, ratio = _share(scene, wrong, rights[key], names)
        worst = min(worst, share)
        if worst < _EXPLAINED or not _agrees(scene, wrong, rights[key], names):
            return None
    return Fit(words=model.words, explained=worst, ratio=ratio, tile=tile, model=model, finer=finer)
