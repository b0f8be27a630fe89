"""Sets of visible pairs by pieces of the keys, as splits and chunks are."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import key_of, visible_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.extent import Extent

__all__ = ["behind_empty", "launched_pieces", "pieces", "split_pieces"]


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
_EVEN: tuple[tuple[str, Callable[[int, int, int], int]], ...] = (
    *_CUTS,
    *(
        (
            f"pieces of whole tiles of {t} keys, as even as can be",
            partial(lambda size, a, n, t: min(size, -(-size // t) * a // n * t), t=t),
        )
        for t in TILES
    ),
)
_MOST = 1024
"""Pieces that a launch may have."""


def launched_pieces(scene: Scene) -> Iterator[tuple[str, Callable[[Scene], Tensor | None]]]:
    """The pieces of keys whose number a launch parameter may be, in words, and of each key the number of the first of its piece.

    Of a scene whose launch has not that parameter the pieces are not known: None.
    """
    for name in _numbers_of_pieces(scene):
        for how, cut in _EVEN:
            yield f"each of the {name} {how}", partial(_begins, name=name, cut=cut)


def split_pieces(scene: Scene) -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    """The pieces of keys of which the form says how many there are, likewise; none of a form of one piece."""
    if scene.form.n_splits > 1:
        for how, cut in _EVEN:
            yield f"the splits ({how})", partial(lambda s, c: _begins_of(s, s.form.n_splits, c), c=cut)


def behind_empty(scene: Scene, seen: Callable[[str, Callable[[Scene], Tensor]], Extent]) -> Iterator[Extent]:
    """The keys of a row behind the first piece in which it sees none, of pieces whose number a launch parameter may be."""
    for name in _numbers_of_pieces(scene) if scene.case.mask.packed is None else ():
        for how, cut in _EVEN:
            words = f"the keys behind the first of the {name} {how}, in which a row sees none"
            yield seen(words, partial(_behind_empty, name=name, cut=cut))


def _numbers_of_pieces(scene: Scene) -> Iterator[str]:
    """Launch parameters that may count pieces: none of those that are the size of a tile."""
    for name, value in scene.case.launch or ():
        if isinstance(value, int) and 1 < value <= _MOST and not name.startswith("block"):
            yield name


def _behind_empty(scene: Scene, name: str, cut: Callable[[int, int, int], int]) -> Tensor:
    n, see = dict(scene.case.launch or ()).get(name), visible_of(scene)
    found = torch.zeros_like(see)
    if not isinstance(n, int) or scene.case.mask.packed is not None:
        return found
    for b, length in enumerate(scene.at.key_limit[:, 0].tolist()):
        edges = torch.tensor([cut(length, a, n) for a in range(1, n + 1)])
        piece = torch.searchsorted(edges, scene.at.key[b].contiguous(), right=True).clamp(max=n - 1)
        some = torch.zeros(*see.shape[1:3], n).index_add(-1, piece, see[b].float()) > 0
        first = torch.where(some.all(-1, keepdim=True), n, (~some).long().argmax(-1, keepdim=True))
        found[b] = piece > first
    return found


def _begins(scene: Scene, name: str, cut: Callable[[int, int, int], int]) -> Tensor | None:
    n = dict(scene.case.launch or ()).get(name)
    return _begins_of(scene, n, cut) if isinstance(n, int) else None


def _begins_of(scene: Scene, n: int, cut: Callable[[int, int, int], int]) -> Tensor:
    rows = []
    for key, limit in zip(scene.at.key, scene.at.key_limit, strict=True):
        found = torch.zeros_like(key)
        for length in limit.unique().tolist():
            edges = torch.tensor(sorted({cut(length, a, n) for a in range(n)} | {0}))
            begin = edges[torch.searchsorted(edges, key.contiguous(), right=True) - 1]
            found = torch.where(limit == length, begin, found)
        rows.append(found)
    return torch.stack(rows)


def _cut(scene: Scene, cut: Callable[[int, int, int], int], a: int, n: int) -> Tensor:
    """Where piece `a` of `n` begins, for each row's keys."""
    at = scene.at.keys
    return torch.tensor([[cut(int(x), a, n) for x in row] for row in at.tolist()]).view(at.shape)[:, None, :, None]
