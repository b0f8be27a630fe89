"""Sets of visible pairs by pieces of the keys, as splits and chunks are."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.extent import Extent

__all__ = ["pieces"]


def pieces(
    scene: Scene, begin: int, end: int, seen: Callable[[str, Callable[[Scene], Tensor]], Extent]
) -> Iterator[Extent]:
    """Sets by pieces of the keys, as splits and chunks are, that begin and end with these keys."""
    length = int(scene.at.keys.max()) if scene.at.keys.numel() else 0
    for words, cut in _CUTS:
        for n in range(2, 9):
            edges = [cut(length, a, n) for a in range(n + 1)]
            if begin in edges[:n] and end + 1 == edges[edges.index(begin) + 1] and begin:
                a = edges.index(begin)
                yield seen(
                    f"the keys of piece {a + 1} of {n} {words}",
                    partial(
                        lambda s, a, n, c: (key_of(s) >= _cut(s, c, a, n)) & (key_of(s) < _cut(s, c, a + 1, n)),
                        a=a,
                        n=n,
                        c=cut,
                    ),
                )
            elif begin in edges[1:n] and end == length - 1:
                a = edges.index(begin)
                yield seen(
                    f"the keys behind the first {a} of {n} {words}",
                    partial(lambda s, a, n, c: key_of(s) >= _cut(s, c, a, n), a=a, n=n, c=cut),
                )
            elif begin == 0 and end + 1 in edges[1:n]:
                a = edges.index(end + 1)
                yield seen(
                    f"the keys of the first {a} of {n} {words}",
                    partial(lambda s, a, n, c: key_of(s) < _cut(s, c, a, n), a=a, n=n, c=cut),
                )


_CUTS: tuple[tuple[str, Callable[[int, int, int], int]], ...] = (
    ("equal pieces", lambda size, a, n: size * a // n),
    ("pieces of ceil(Sk / n) keys", lambda size, a, n: min(size, a * -(-size // n))),
    ("pieces of floor(Sk / n) keys", lambda size, a, n: size if a == n else a * (size // n)),
    *(
        (
            f"pieces of whole tiles of {t} keys",
            partial(lambda size, a, n, t: min(size, a * ceil(ceil(size / t) / n) * t), t=t),
        )
        for t in TILES
    ),
)
"""Where `n` pieces of so many keys begin, in words."""


def _cut(scene: Scene, cut: Callable[[int, int, int], int], a: int, n: int) -> Tensor:
    """Where piece `a` of `n` begins, for each row's keys."""
    at = scene.at.keys
    return torch.tensor([[cut(int(x), a, n) for x in row] for row in at.tolist()]).view(at.shape)[:, None, :, None]
