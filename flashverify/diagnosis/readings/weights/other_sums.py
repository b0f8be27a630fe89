"""Row sums that are those of another row, head or sequence, and sums of parts of the keys that are added without their factors."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.masks.other_masks import other_rows
from flashverify.diagnosis.readings.masks.pieces import split_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.weights.effect import Effect

    Mass = Callable[[Effect, Tensor], Tensor]
    _Move = Callable[[Effect, Tensor], Tensor]
    _Begin = Callable[[Scene], Tensor]

__all__ = ["other_sums"]


def other_sums(effect: Effect, sum_of: Mass) -> Iterator[tuple[str, Mass]]:
    """As `masses` gives them.

    Args:
        effect: a case.
        sum_of: the logarithm of the row sum that belongs to logits.
    """
    for words, begin in split_pieces(effect.scene):
        yield (
            f"adds the row sums of {words} without their factors, each relative to the largest logit of its own part",
            partial(_added, begin=begin),
        )
    for words, move in other_rows():
        yield f"is that of {words}", partial(_moved, move=move, sum_of=sum_of)
        yield (
            f"is that of {words}, relative to the largest logit of each",
            partial(_relative, move=move, sum_of=sum_of),
        )


def _moved(effect: Effect, z: Tensor, move: _Move, sum_of: Mass) -> Tensor:
    return move(effect, sum_of(effect, z).unsqueeze(-1)).squeeze(-1)


def _relative(effect: Effect, z: Tensor, move: _Move, sum_of: Mass) -> Tensor:
    top = z.amax(-1)
    share = torch.where(top == -math.inf, -math.inf, sum_of(effect, z) - top)
    return move(effect, share.unsqueeze(-1)).squeeze(-1) + top


def _added(effect: Effect, z: Tensor, begin: _Begin) -> Tensor:
    first = begin(effect.scene)
    top, total = z.amax(-1), torch.full_like(z[..., 0], -math.inf)
    for part in sorted(set(first.flatten().tolist())):
        own = z.masked_fill(first[:, None, None, :] != part, -math.inf)
        highest = own.amax(-1)
        share = torch.where(highest == -math.inf, -math.inf, own.logsumexp(-1) - highest)
        total = torch.logaddexp(total, share)
    return total + top
