"""How well a model of rounding predicts the error of each element."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.precision.emulation import backward, declared, forward
from flashverify.diagnosis.precision.models import TILES, Model, models
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.emulation import Steps

__all__ = ["Fit", "asked", "best", "declared_share", "small"]

_EXPLAINED = 0.75
"""Share of the squared error that a model must explain, on each case."""
_CLEAR = 0.6
"""What the best one leaves must be at most so much of what the next one leaves; else both are named."""
_LARGEST_ERROR = 0.05
"""Share of the squared size of an output up to which its error counts as one of precision."""
_ACTS = 1e-3
"""A model that moves an output by less than this share of its error says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A model and how it does.

    Attributes:
        words: the model's.
        explained: the least share of the squared error that it explains.
        ratio: size of the error beside that of the model's, of the last case.
        tile: keys or rows of its tiles; None for all at once.
        several: the model changes several steps.
    """

    words: str
    explained: float
    ratio: float
    tile: int | None
    several: bool


def asked(scene: Scene, name: str) -> Tensor:
    """Bool: the elements of an output of which something finite is asked, and that are finite."""
    right, got = scene.right[name], scene.outputs[name]
    found = torch.isfinite(right.value) & torch.isfinite(right.total) & (right.total > 0) & torch.isfinite(got)
    return found & ~scene.free[name] if name in scene.free else found


def small(scene: Scene, names: frozenset[str]) -> bool:
    """Whether every failing output is finite and about right, so that precision is the question."""
    for name in names:
        got, value = scene.outputs[name], scene.right[name].value
        lost = torch.isfinite(value) & ~torch.isfinite(got)
        if bool((lost & ~scene.free[name] if name in scene.free else lost).any()):
            return False
        known = asked(scene, name)
        if float(((got - value)[known] ** 2).sum()) > _LARGEST_ERROR * float((value[known] ** 2).sum()):
            return False
    return True


def _predicted(scene: Scene, steps: Steps, names: frozenset[str]) -> dict[str, Tensor]:
    found = forward(scene, steps) if names & set(FORWARD) else {}
    return found | (backward(scene, steps) if names - set(FORWARD) else {})


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
        if not whole or moved < _ACTS * whole:
            return -math.inf, math.nan
        shares.append(1.0 - float(((error - model)[known] ** 2).sum()) / whole)
        ratios.append(math.sqrt(whole / moved))
    return min(shares), ratios[0]


def declared_share(scenes: list[Scene], name: str) -> float:
    """The least share of the squared error of an output that its declared roundings predict, under the best width of tiles."""
    return max(min(_share_declared(scene, name, tile) for scene in scenes) for tile in TILES)


def _share_declared(scene: Scene, name: str, tile: int | None) -> float:
    found = _predicted(scene, _tiled(declared(scene), tile), frozenset({name}))
    if name not in found:
        return 0.0
    error, model = ((x - scene.right[name].value) / scene.right[name].total for x in (scene.outputs[name], found[name]))
    known = asked(scene, name) & torch.isfinite(error) & torch.isfinite(model)
    whole = float((error[known] ** 2).sum())
    return 1.0 - float(((error - model)[known] ** 2).sum()) / whole if whole else 0.0


def best(scenes: list[Scene], names: frozenset[str], deadline: float) -> list[Fit]:
    """The models that predict the errors of the outputs `names` on every scene, best first: one, or those that cannot be told apart."""
    import time

    form = scenes[0].form
    of_rows = names <= {"dk", "dv"}  # no form says the rows of a tile
    tiles = (form.block_n,) if form.block_n is not None and not of_rows else TILES
    fits: list[Fit] = []
    rights = {
        (n, tile): _predicted(s, _tiled(declared(s), tile), names) for n, s in enumerate(scenes) for tile in tiles
    }
    for model in models():
        if not names <= set(model.outputs) or time.monotonic() > deadline:
            continue
        fits += [fit for tile in tiles if (fit := _fit(model, tile, scenes, names, rights)) is not None]
    fits.sort(key=lambda fit: -fit.explained)
    if not fits:
        return []
    left = max(1.0 - fits[0].explained, 1e-3)
    near = {fit.words: fit for fit in reversed(fits) if left > _CLEAR * (1.0 - fit.explained)}
    found = list(near.values())[::-1]
    return [fit for fit in found if not fit.several] or found


def _tiled(steps: Steps, tile: int | None) -> Steps:
    return dataclasses.replace(steps, tile=tile)


def _fit(
    model: Model,
    tile: int | None,
    scenes: list[Scene],
    names: frozenset[str],
    rights: dict[tuple[int, int | None], dict[str, Tensor]],
) -> Fit | None:
    worst, ratio = 1.0, math.nan
    for number, scene in enumerate(scenes):
        wrong = _predicted(scene, model.change(_tiled(declared(scene), tile)), names)
        share, ratio = _share(scene, wrong, rights[number, tile], names)
        worst = min(worst, share)
        if worst < _EXPLAINED:
            return None
    return Fit(words=model.words, explained=worst, ratio=ratio, tile=tile, several=model.several)
