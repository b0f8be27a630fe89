"""An LSE whose largest logit, or whose row sum, is that of other keys or rows than the other one of the two."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import key_of
from flashverify.diagnosis.readings.masks.extents import tile_extents
from flashverify.diagnosis.readings.masks.other_masks import other_rows
from flashverify.diagnosis.readings.masks.pieces import split_pieces
from flashverify.diagnosis.readings.weights.masses import sum_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.weights.effect import Effect

    Which = Callable[[Scene], Tensor]
    Lse = Callable[[Effect, Tensor], Tensor]
    """Of an effect and the logits of its model, `[B, Hq, Sq]`."""

__all__ = ["lse_of_parts"]

_FEWEST = 6
"""Rows of which the LSE differs from that of the weights."""


def lse_of_parts(having: list[tuple[Effect, Tensor]]) -> str:
    """Of which keys or rows the two parts of the LSE are, in words after `the LSE`; empty where nothing known gives every row.

    Args:
        having: cases with an LSE, and the logits of their model, `[B, Hq, Sq, Sk]`.
    """
    for words, of in _candidates(having[0][0]):
        if all(_gives(effect, of(effect, z)) for effect, z in having):
            apart = sum(int(_differs(effect, of(effect, z), z).sum()) for effect, z in having)
            if apart >= _FEWEST:
                return words
    return ""


def _gives(effect: Effect, predicted: Tensor) -> bool:
    """Whether the LSE of every row that sees a key is `predicted`, -inf too."""
    assert effect.lse is not None
    none = (predicted == -math.inf) & (effect.lse == -math.inf)
    return bool((effect.rows_with_lse(predicted) | none | effect.open_rows).all())


def _differs(effect: Effect, predicted: Tensor, z: Tensor) -> Tensor:
    """Bool `[B, Hq, Sq]`: rows that tell the prediction from the LSE of the weights."""
    return ~effect.rows_with_lse(sum_of(effect, z)) & ~effect.open_rows & (predicted > -math.inf)


def _candidates(effect: Effect) -> Iterator[tuple[str, Lse]]:
    for words, keys in _parts(effect.scene):
        yield (
            f"has the largest logit of {words} for that of all keys, to which the row sum in it is relative",
            partial(_with_the_top, keys=keys),
        )
        yield (
            f"holds the row sum relative to the largest logit of {words}, and adds that of all keys",
            partial(_without_the_top, keys=keys),
        )
        yield (
            f"is that of a row sum in which {words} count relative to their own largest logit, not to that of all keys",
            partial(_not_rescaled, keys=keys),
        )
    yield (
        "has the largest logit of all keys, hidden ones too, for that of the visible keys, to which the row sum in it is relative",
        lambda e, z: sum_of(e, z) - z.amax(-1) + e.logits.amax(-1),
    )
    for words, move in other_rows():
        yield (
            f"has the largest logit of {words} beside the row's own sum, which is relative to its own one",
            partial(_top_of, move=move),
        )


def _parts(scene: Scene) -> Iterator[tuple[str, Which]]:
    """Keys in words."""
    for t in TILES:
        yield (
            f"the keys of every second tile of {t}, from the first one on",
            partial(lambda s, t: key_of(s) // t % 2 == 0, t=t),
        )
        for extent in tile_extents(t):
            yield extent.words, extent.where
    for words, begin in split_pieces(scene):
        for number, name in enumerate(("first", "second", "third")):
            yield f"the {name} of {words}", partial(_piece, begin=begin, number=number)
        yield f"the last of {words}", partial(_piece, begin=begin, number=-1)


def _piece(scene: Scene, *, begin: Which, number: int) -> Tensor:
    first = begin(scene)
    starts = sorted(set(first.flatten().tolist()))
    if not starts or number >= len(starts):
        return torch.zeros((), dtype=torch.bool)
    found: Tensor = (first == starts[number])[:, None, None, :]
    return found


def _of(z: Tensor, effect: Effect, keys: Which) -> Tensor:
    return z.masked_fill(~keys(effect.scene), -math.inf)


def _with_the_top(effect: Effect, z: Tensor, *, keys: Which) -> Tensor:
    return sum_of(effect, z) - z.amax(-1) + _of(z, effect, keys).amax(-1)


def _without_the_top(effect: Effect, z: Tensor, *, keys: Which) -> Tensor:
    return sum_of(effect, z) + z.amax(-1) - _of(z, effect, keys).amax(-1)


def _not_rescaled(effect: Effect, z: Tensor, *, keys: Which) -> Tensor:
    some, top = _of(z, effect, keys), z.amax(-1)
    highest = some.amax(-1)
    own = torch.where(highest == -math.inf, -math.inf, some.logsumexp(-1) - highest + top)
    rest = z.masked_fill(keys(effect.scene), -math.inf)
    return torch.logaddexp(own, sum_of(effect, rest))


def _top_of(effect: Effect, z: Tensor, *, move: Lse) -> Tensor:
    top = z.amax(-1)
    return sum_of(effect, z) - top + move(effect, top.unsqueeze(-1)).squeeze(-1)
