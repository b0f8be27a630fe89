"""Wrong semantics of the rescaling of an online softmax: missed or made twice, in every tile or in some."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import tiles
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Chosen = Callable[[Tensor, Tensor], Tensor]
    Change = Callable[[Scene], Iterator[Alternative]]

__all__ = ["RESCALING"]

_LARGEST_KEYS = 512
_LN2 = math.log(2.0)
_SEEN = 0.05
"""A growth, natural units, that shows in the LSE of a row where it is missed."""


def _growth(scene: Scene, size: int) -> tuple[Tensor, Tensor] | None:
    """Tile of each key `[B, 1, 1, Sk]`, and by how much each tile raises the running maximum, natural units, `[tiles, B, Hq, Sq]`.

    0 where the maximum stays or is the first one; None where it never grows.
    """
    if ("growth", size) not in scene.memo:
        scene.memo["growth", size] = _grown(scene, size)
    found: tuple[Tensor, Tensor] | None = scene.memo["growth", size]
    return found


def _grown(scene: Scene, size: int) -> tuple[Tensor, Tensor] | None:
    if scene.case.seq_k > _LARGEST_KEYS or not scene.case.seq_k:
        return None
    z = logits(scene.inputs)
    tile = (scene.at.key // size)[:, None, None, :]
    top = torch.full_like(z[..., 0], -torch.inf)
    found = []
    for number in range(int(tile.max()) + 1):
        new = torch.maximum(top, z.masked_fill(tile != number, -torch.inf).amax(-1))
        found.append(torch.where(torch.isfinite(top), new - top, 0.0))
        top = new
    grown = torch.stack(found)
    return (tile, grown) if bool((grown > 0).any()) else None


def _behind(scene: Scene, size: int, chosen: Chosen, times: float, *, late: bool = False) -> Tensor | None:
    """Per pair the logarithm of the factor by which its weight is wrong, `[B, Hq, Sq, Sk]`; None where the maximum never grows.

    `late`: of each tile the next growth alone is missed.
    """
    found = _growth(scene, size)
    if found is None:
        return None
    tile, grown = found
    number = torch.arange(len(grown)).view(-1, 1, 1, 1)
    missed = torch.where(chosen(number, grown), grown, 0.0)
    later = missed.flip(0).cumsum(0).flip(0) - missed  # of the tiles behind each one
    if late:
        later = torch.cat([missed[1:], torch.zeros_like(missed[:1])])
    shape = (*scene.case.shape_q[:3], scene.case.seq_k)
    by_key: Tensor = later.movedim(0, -1).gather(-1, tile.expand(shape))
    return times * by_key


def _limited(limit: float) -> Chosen:
    return lambda _number, grown: grown < limit


def _limits(scene: Scene, size: int) -> dict[str, Chosen]:
    """Of the limits below which growth may be missed those that the wrong rows of a failing case leave; all where none is wrong."""
    found = _growth(scene, size)
    wrong = [scene.failures[name] for name in FORWARD if name in scene.failures]
    if found is None or not wrong:
        return _BY_GROWTH
    grown = found[1]
    rows = torch.stack([x.any(-1) if x.ndim == grown.ndim else x for x in wrong]).any(0)
    shown = [
        x[(x > 0) & (x.sum(0) == x)] for x in (grown.where(rows, 0.0), grown.where(~rows, 0.0))
    ]  # of rows with one growth
    least = shown[0].max() if len(shown[0]) else 0.0
    right = shown[1][(shown[1] > _SEEN) & (shown[1] < 4.0)]  # larger ones leave little of the tiles before
    most = right.min() if len(right) else math.inf
    return {words: _limited(limit) for words, limit in _LIMITS.items() if least < limit <= most} | _ABOVE


def _wrong(
    target: str, choices: Callable[[Scene, int], dict[str, Chosen]], times: float, *, late: bool = False
) -> Change:
    """The accumulator, the row sum or both lack the chosen rescalings (`times` 1), or have them twice (-1)."""

    def build(scene: Scene) -> Iterator[Alternative]:
        natural = scene.truth.forward()["lse"][0] * scene.unit

        def finish(found: Expectations) -> Expectations:
            if "o" not in found or target == "both":
                return found
            row = (found["lse"].value * scene.unit - natural).nan_to_num(0.0, 0.0, 0.0).unsqueeze(-1)
            if target == "accumulator":
                lse = {name: right for name, right in scene.right.items() if name == "lse"}  # a subject may return none
                return {"o": found["o"].times(row.exp()), **lse}
            return {"o": scene.right["o"].times((-row).exp()), "lse": found["lse"]}

        for size in tiles(scene):
            for words, which in choices(scene, size).items():
                detail = ", ".join((f"a tile of {size} keys", *(words,) * bool(words)))
                bias = _behind(scene, size, which, times, late=late)
                if bias is not None:
                    inputs = replace(scene.inputs, biases=(*scene.inputs.biases, bias))
                    yield Alternative(inputs=inputs, finish=finish, detail=detail)
                elif (
                    size == scene.form.block_n
                ):  # nothing is wrong where the maximum does not grow behind the first tile
                    yield Alternative(detail=detail)

    return build


def _all(_number: Tensor, grown: Tensor) -> Tensor:
    return torch.ones_like(grown, dtype=torch.bool)


_EVERY: dict[str, Chosen] = {"": _all}
_SOME: dict[str, Chosen] = {
    "in the last one": lambda number, grown: (number == len(grown) - 1) & (grown >= 0),
    "in the second one": lambda number, grown: (number == 1) & (grown >= 0),
    "from the third one on": lambda number, grown: (number > 1) & (grown >= 0),
    "but in the last one": lambda number, grown: (number < len(grown) - 1) & (grown >= 0),
}
_LIMITS = {
    "where it grows by a factor below 256": 8.0 * _LN2,
    "where it grows by a factor below e": 1.0,
    "where it grows by a factor below sqrt(2)": 0.5 * _LN2,
    "where it grows by a factor below 2": _LN2,
    "where it grows by a factor below sqrt(e)": 0.5,
    "where it grows by a factor below e^2": 2.0,
    "where it grows by a factor below 4": 2.0 * _LN2,
    "where it grows by a factor below 16": 4.0 * _LN2,
    "where it grows by a factor below e^4": 4.0,
    "where it grows by a factor below e^8": 8.0,
    "where it grows by a factor below e^10": 10.0,
}
"""Growths of the maximum, natural units, from which on some kernels rescale, or up to which."""
_ABOVE: dict[str, Chosen] = {"where it grows by a factor above 256": lambda _number, grown: grown > 8.0 * _LN2}
_BY_GROWTH = {words: _limited(limit) for words, limit in _LIMITS.items()} | _ABOVE
_TARGETS = (
    ("accumulator", "alpha", "the accumulator is", ("o",)),
    ("sum", "row-sum", "the row sum is", FORWARD),
    ("both", "rescaling", "accumulator and row sum are", FORWARD),
)
_NAMES = {"alpha": "alpha-not-applied", "row-sum": "row-sum-not-rescaled", "rescaling": "rescaling-missing"}

RESCALING = (
    *(
        Semantics(
            name=_NAMES[name],
            sentence=f"{words} not rescaled when the running maximum grows",
            build=_wrong(target, lambda *_: _EVERY, 1.0),
            outputs=outputs,
        )
        for target, name, words, outputs in _TARGETS
    ),
    *(
        Semantics(
            name=f"{name}-twice",
            sentence=f"{words} rescaled twice when the running maximum grows",
            build=_wrong(target, lambda *_: _EVERY, -1.0),
            outputs=outputs,
        )
        for target, name, words, outputs in _TARGETS
    ),
    Semantics(
        name="alpha-late-by-a-tile",
        sentence="what a tile of keys gives to the accumulator is added behind the rescaling by the next tile, not before it",
        build=_wrong("accumulator", lambda *_: _EVERY, 1.0, late=True),
        outputs=("o",),
    ),
    *(
        Semantics(
            name=f"{name}-missed-in-some-tiles",
            sentence=f"{words} not rescaled in some tiles where the running maximum grows",
            build=_wrong(target, lambda *_: _SOME, 1.0),
            outputs=outputs,
        )
        for target, name, words, outputs in _TARGETS
    ),
    *(
        Semantics(
            name=f"{name}-missed-by-growth",
            sentence=f"{words} rescaled or not by how far the running maximum grows",
            build=_wrong(target, _limits, 1.0),
            outputs=outputs,
        )
        for target, name, words, outputs in _TARGETS
    ),
    *(
        Semantics(
            name=f"{name}-twice-in-some-tiles",
            sentence=f"{words} rescaled twice in some tiles where the running maximum grows",
            build=_wrong(target, lambda *_: _SOME, -1.0),
            outputs=outputs,
        )
        for target, name, words, outputs in _TARGETS
    ),
)
