"""Sets of visible pairs by the place of a key in a group or a tile, as lanes of a warp, halves of a tile and words of a vector divide keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.extent import Extent

    Seen = Callable[[str, Callable[[Scene], Tensor]], Extent]

__all__ = ["lanes"]

_GROUPS = (2, 3, 4, 8)
_ORDINAL = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def lanes(scene: Scene, wrong: Tensor, seen: Seen) -> Iterator[Extent]:
    """The sets that hold all keys of the pairs that are wrong.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`, visible pairs, at least one.
        seen: makes a set of visible pairs of words and of those that it is to hold.
    """
    number = torch.broadcast_to(key_of(scene), wrong.shape)[wrong]
    for group in _GROUPS:
        place = number % group
        n = int(place.min())
        if n == int(place.max()):
            words = (
                f"every second key from the {_ORDINAL[n]} one on"
                if group == 2
                else f"the {_ORDINAL[n]} key of each {group}"
            )
            yield seen(words, partial(lambda s, g, n: key_of(s) % g == n, g=group, n=n))
    for tile in TILES:
        place = number % tile
        first, last = int(place.min()), int(place.max())
        if first:
            yield seen(
                f"keys from place {first} of their tile of {tile} on",
                partial(lambda s, t, n: key_of(s) % t >= n, t=tile, n=first),
            )
        if last < tile - 1:
            yield seen(
                f"the first {last + 1} keys of each tile of {tile}",
                partial(lambda s, t, n: key_of(s) % t <= n, t=tile, n=last),
            )
