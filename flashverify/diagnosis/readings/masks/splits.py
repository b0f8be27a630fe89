"""Sets of pairs by the splits of a walk over the keys, as decoding kernels deal out their tiles."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.places import features_of
from flashverify.diagnosis.readings.masks.ends import FAR, sizes_of, visible_of
from flashverify.diagnosis.readings.masks.extent import Extent
from flashverify.diagnosis.readings.masks.walk_limits import walk_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Sets = Callable[["_Split"], Tensor]

__all__ = ["by_splits", "splits_of"]


def splits_of(scene: Scene) -> int:
    """Splits of the keys that the case asks for or the subject declares; 1 where neither says so."""
    asked = [value for name, value in scene.case.launch if "split" in name or "part" in name]
    declared = features_of(scene).get("splits", 1)
    found = asked[0] if asked else declared
    return found if isinstance(found, int) and found > 0 else 1


class _Split:
    """The splits of a walk: tile t of n stands in the last split s that begins at tile n s // splits or before.

    Attributes:
        number: of the split in which each key stands, broadcasts to `[B, Hq, Sq, Sk]`.
        first: whether the key's tile is the first of its split.
        last: whether it is the last one.
        uneven: whether the split begins at a fraction of a tile.
        count: splits.
        see: the declared mask.
    """

    def __init__(self, scene: Scene, fixed: int, size: int, *, packed: bool) -> None:
        walk = walk_of(scene, keys=True, fixed=fixed, size=size, packed=packed)
        n = self.count = splits_of(scene)
        tiles = (walk.last + 1 - walk.begin).clamp(min=0)
        tile = walk.tile - walk.begin
        begins = [tiles * s // n for s in range(n + 1)]
        self.number = torch.stack([(tile >= b).long() for b in begins[1:n]]).sum(0) if n > 1 else tile * 0
        self.first = torch.stack([tile == b for b in begins[:n]]).any(0)
        self.last = torch.stack([tile == b - 1 for b in begins[1:]]).any(0)
        self.uneven = torch.stack([(tile == begins[s]) & (tiles * s % n != 0) for s in range(n)]).any(0)
        self.see = visible_of(scene)

    def behind_an_empty_one(self) -> Tensor:
        """Pairs of splits behind the first one in which the row sees no key."""
        number = self.number.expand(self.see.shape)
        some = torch.stack([(self.see & (number == s)).any(-1, keepdim=True) for s in range(self.count)])
        full = some.long().cumprod(0).sum(0)
        return number > full


_SETS: tuple[tuple[str, Sets], ...] = (
    ("the splits{} behind the first one in which the row sees no key", lambda s: s.behind_an_empty_one()),
    ("the splits{} behind the first one", lambda s: s.number > 0),
    ("the first split{}", lambda s: s.number == 0),
    ("the last split{}", lambda s: s.number == s.count - 1),
    ("the splits{} before the last one", lambda s: s.number < s.count - 1),
    ("the last tile of each split{}", lambda s: s.last),
    ("the last tile of each split{} but the last", lambda s: s.last & (s.number < s.count - 1)),
    ("the first tile of each split{}", lambda s: s.first),
    ("the first tile of each split{} but the first", lambda s: s.first & (s.number > 0)),
    ("the first tile of each split{} that begins at a fraction of a tile (tiles * split / splits)", lambda s: s.uneven),
)


def by_splits(scene: Scene) -> Iterator[Extent]:
    """Sets of pairs by splits, the simpler ones first; none where there is one split."""
    if splits_of(scene) == 1:
        return
    for size in sizes_of(scene):
        for fixed, packed in ((FAR, False), *((t, True) for t in TILES), *((t, False) for t in TILES)):
            rows = "" if fixed == FAR else f" for {fixed} packed rows each" if packed else f" for {fixed} rows each"
            for words, sets in _SETS:
                yield Extent(
                    words.format(f" (by tiles of {size} keys{rows})"),
                    partial(_where, sets=sets, fixed=fixed, size=size, packed=packed),
                )


def _where(scene: Scene, sets: Sets, fixed: int, size: int, *, packed: bool) -> Tensor:
    if splits_of(scene) == 1:
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    name = ("splits", fixed, size, packed)
    if name not in scene.memo:
        scene.memo[name] = _Split(scene, fixed, size, packed=packed)
    return visible_of(scene) & sets(scene.memo[name])
