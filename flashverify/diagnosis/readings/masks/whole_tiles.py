"""Sets of visible pairs by whether their tile of rows and keys needs a mask, and by how little is left of a last tile."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import FAR, ends_of, key_of, over_tile, sizes_of, visible_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.extent import Extent

    Seen = Callable[[str, Callable[[Scene], Tensor]], Extent]

__all__ = ["rest_of", "tails", "whole_tiles"]

_TAILS = (1, 2, 3, 4, 7, 8, 15, 16)
"""So many keys may be too few for a last tile."""


def whole_tiles(scene: Scene, seen: Seen) -> Iterator[Extent]:
    """Tiles that hold hidden pairs or end behind the keys, and the others, by the sizes of tiles."""
    for packed in (False, True) if scene.group > 1 else (False,):
        for m in TILES:
            beside = ", the heads of a group side by side," if packed else ""
            for n in sizes_of(scene):
                tiles = f"tiles of {m} rows{beside} and {n} keys"
                whole = partial(_whole, m=m, n=n, packed=packed)
                yield seen(
                    f"the {tiles} that need a mask (a hidden pair, or the end of the keys, lies in them)",
                    partial(lambda s, w: ~w(s), w=whole),
                )
                yield seen(f"the {tiles} that need no mask", whole)


def _whole(scene: Scene, m: int, n: int, *, packed: bool) -> Tensor:
    """Bool `[B, Hq, Sq, Sk]`: every declared row of the pair's tile sees all `n` keys of it."""
    name = ("whole", m, n, packed)
    if name not in scene.memo:
        at, see = scene.at, visible_of(scene)
        batch, heads, rows, keys = see.shape
        group = scene.group if packed else 1
        member = torch.arange(heads).view(1, -1, 1) % group
        place = (at.row[:, None] * group + member) // m
        line = (at.row_sequence[:, None] * heads + torch.arange(heads).view(1, -1, 1) // group) * FAR + place
        lines = torch.unique(line, return_inverse=True)[1].flatten(1)
        columns = torch.unique(at.key_sequence * FAR + at.key // n, return_inverse=True)[1]
        lacking = ~see & (at.row < at.rows)[:, None, :, None]
        lacking = lacking | ((at.key // n + 1) * n > at.key_limit)[:, None, None, :]
        shape = (batch, int(lines.max()) + 1, int(columns.max()) + 1)
        index = (lines.unsqueeze(-1) * shape[2] + columns.unsqueeze(1)).flatten(1)
        count = torch.zeros(batch, shape[1] * shape[2]).scatter_add(1, index, lacking.flatten(1).float())
        scene.memo[name] = count.gather(1, index).view(batch, heads, rows, keys) == 0
    found: Tensor = scene.memo[name]
    return found


def tails(scene: Scene, wrong: Tensor, seen: Seen) -> Iterator[Extent]:
    """The keys of a last tile of which few are left, of the row's own keys, of those of its tile of rows, or of all."""
    for m in (FAR, *TILES, 0):
        for t in sizes_of(scene):
            key, (begin, rest) = key_of(scene), rest_of(scene, m, t)
            inside = wrong & (key >= begin)
            if not bool((inside == wrong).all()):
                continue
            least = int(rest.expand_as(wrong)[wrong].max())
            whose = {FAR: "the keys", 0: "the keys that a row sees"}.get(m, f"the keys that a tile of {m} rows sees")
            for c in sorted({least, *(c for c in _TAILS if least < c < t)}):
                few = "one key of it is left" if c == 1 else f"at most {c} keys of it are left"
                yield seen(f"the last tile of {t} of {whose}, where {few}", partial(_tail, m=m, t=t, c=c))


def _tail(scene: Scene, m: int, t: int, c: int) -> Tensor:
    begin, rest = rest_of(scene, m, t)
    return (key_of(scene) >= begin) & (rest <= c)


def rest_of(scene: Scene, m: int, t: int) -> tuple[Tensor, Tensor]:
    """Where the last tile of `t` of the keys begins that a row, or the rows of its tile of `m`, see, and how many of them lie in it."""
    if m == FAR:
        end = scene.at.keys[:, None, :, None]
    else:
        end = (ends_of(scene)[1] if m == 0 else over_tile(scene, m, common=False)[1]) + 1
    begin = (end - 1) // t * t
    return begin, end - begin
