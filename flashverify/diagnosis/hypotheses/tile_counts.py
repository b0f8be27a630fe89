"""Wrong semantics of how often a tile or a split of keys counts, and of what is taken from them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypotheses.merging import pieces
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import tiles, with_parts
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Times = Callable[[Tensor, Tensor], Tensor]

__all__ = ["TILE_COUNTS"]


def _twice(which: Times) -> Callable[[Scene], Iterator[Alternative]]:
    """Tiles that `which` names, by the number of each key's tile and the number of tiles of its sequence, count twice."""

    def build(scene: Scene) -> Iterator[Alternative]:
        tile_of, end = scene.at.key[:, None, None, :], scene.at.key_limit[:, None, None, :]
        for size in tiles(scene):
            chosen = which(tile_of // size, -(-end // size))
            bias = torch.where(chosen, math.log(2.0), 0.0).double()
            inputs = replace(scene.inputs, biases=(*scene.inputs.biases, bias))
            yield Alternative(inputs=inputs, detail=f"a tile of {size} keys")

    return build


def _left_out(which: Times) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        tile_of, end = scene.at.key[:, None, None, :], scene.at.key_limit[:, None, None, :]
        for size in tiles(scene):
            part = ~which(tile_of // size, -(-end // size))
            inputs = (
                None if bool(part.all()) else with_parts(scene, walk=part)
            )  # a tile of this size loses nothing here
            yield Alternative(inputs=inputs, detail=f"a tile of {size} keys")

    return build


def _key_of_tile(which: Callable[[Tensor, int], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """The first or the last key of every tile."""

    def build(scene: Scene) -> Iterator[Alternative]:
        for size in tiles(scene):
            part = ~which(scene.at.key[:, None, None, :], size)
            yield Alternative(inputs=with_parts(scene, walk=part), detail=f"a tile of {size} keys")

    return build


def _one_split(which: str) -> Callable[[Scene], Iterator[Alternative]]:
    """Of the partial results only one is kept."""

    def build(scene: Scene) -> Iterator[Alternative]:
        for piece in pieces(scene):
            kept = piece == (0 if which == "first" else scene.form.n_splits - 1)
            yield Alternative(inputs=with_parts(scene, splits=kept))

    return build


def _average(scene: Scene) -> Iterator[Alternative]:
    """O is the mean of the partial results, of all of them or of those that have keys; the LSE is right, or the mean too."""
    z = logits(scene.inputs)
    whole = z.logsumexp(-1, keepdim=True)
    for piece in pieces(scene):
        own = piece.expand(z.shape)
        every = torch.stack([z.masked_fill(own != s, -torch.inf).logsumexp(-1) for s in range(scene.form.n_splits)])
        live = torch.isfinite(every).sum(0).clamp(min=1).double().unsqueeze(-1)
        # a key weighs exp(z - LSE of its partial) / partials, which is exp(z + (LSE - that LSE) - log partials - LSE)
        gap = (whole - every.movedim(0, -1).gather(-1, own)).nan_to_num(0.0, 0.0, 0.0)
        for count, detail in ((live, "of those with keys"), (torch.full_like(live, scene.form.n_splits), "of all")):
            share = (live / count).expand(*live.shape[:3], 1)

            def finish(found: Expectations, share: Tensor = share) -> Expectations:
                if "o" not in found:
                    return found
                kept = {
                    name: right for name, right in scene.right.items() if name == "lse"
                }  # of a subject that returns one
                return {"o": found["o"].times(share), **kept}

            inputs = replace(scene.inputs, biases=(*scene.inputs.biases, gap))
            yield Alternative(inputs=inputs, finish=finish, detail=detail)


TILE_COUNTS = (
    Semantics(
        name="last-key-tile-twice",
        sentence="the last tile of keys is counted twice",
        build=_twice(lambda tile, count: tile == count - 1),
        outputs=FORWARD,
    ),
    Semantics(
        name="first-key-tile-twice",
        sentence="the first tile of keys is counted twice",
        build=_twice(lambda tile, _count: tile == 0),
        outputs=FORWARD,
    ),
    Semantics(
        name="odd-key-tile-lost",
        sentence="tiles of keys are taken in pairs, and the last one is left out where their number is odd",
        build=_left_out(lambda tile, count: (tile == count - 1) & (count % 2 == 1)),
    ),
    Semantics(
        name="second-key-tiles-skipped",
        sentence="every second tile of keys is left out",
        build=_left_out(lambda tile, _count: tile % 2 == 1),
    ),
    Semantics(
        name="last-key-of-tiles-missing",
        sentence="the last key of every tile is left out",
        build=_key_of_tile(lambda key, size: key % size == size - 1),
    ),
    Semantics(
        name="first-key-of-tiles-missing",
        sentence="the first key of every tile is left out",
        build=_key_of_tile(lambda key, size: key % size == 0),
    ),
    Semantics(
        name="split-first-alone",
        sentence="of the partial results only the first one is kept",
        build=_one_split("first"),
        outputs=FORWARD,
    ),
    Semantics(
        name="split-last-alone",
        sentence="of the partial results only the last one is kept",
        build=_one_split("last"),
        outputs=FORWARD,
    ),
    Semantics(
        name="merge-average",
        sentence="O is the mean of the partial results, without their weights",
        build=_average,
        outputs=FORWARD,
    ),
)
