"""Sets of hidden pairs, in words: by the part of the mask that hides them, and by how far they are from what a row sees."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.predicate import visible_parts, widening
from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.ends import FAR, ends_of, key_of, of_tile, sizes_of, visible_of
from flashverify.diagnosis.readings.masks.extent import Extent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["hidden_by", "hidden_extents", "hidden_words"]


_UNITS = (2, 4, 8)
"""Keys that one load brings, of which a length may be a whole number."""
_HIDDEN = {
    "sequence": "keys of other sequences",
    "rows": "keys in rows from the declared length on",
    "keys": "keys from the declared length on",
    "causal": "keys behind the diagonal",
    "left": "keys before the window",
    "right": "keys behind the window",
    "tree": "keys that the tree hides",
    "bitmap": "keys that the bitmap hides",
    "blocks": "keys of dead blocks",
    "selection": "keys of blocks that are not selected",
}


def hidden_extents(scene: Scene, wrong: Tensor) -> Iterator[Extent]:
    """Sets of hidden pairs, the simpler ones first: by the part of the mask that hides them, and by how far they are from what a row sees.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`, hidden pairs; distances are theirs.
    """
    names = [*(name for name in visible_parts(scene.case) if name in _HIDDEN), ""]
    for name in names:
        yield Extent(_HIDDEN.get(name, "every key that the mask hides"), partial(lambda s, n: hidden_by(s, n), n=name))
    first, last = ends_of(scene)
    where = wrong & (first < FAR)
    key = key_of(scene)
    before, behind = (first - key)[..., :][where & (key < first)], (key - last)[where & (key > last)]
    for name in names:
        words = _HIDDEN.get(name, "hidden keys")
        if behind.numel():
            c = int(behind.max())
            yield Extent(f"{words}, {_up_to(c)} behind the last one that the row sees", _near(name, 0, c))
        if before.numel():
            c = int(before.max())
            yield Extent(f"{words}, {_up_to(c)} before the first one that the row sees", _near(name, c, 0))
        if behind.numel() and before.numel():
            yield Extent(
                f"{words}, between those that the row sees or next to them",
                _near(name, int(before.max()), int(behind.max())),
            )
        for size in sizes_of(scene):
            yield Extent(f"{words}, back to the start of their tile of {size}", _tile_of_keys(name, size, before=True))
            yield Extent(f"{words}, up to the end of their tile of {size}", _tile_of_keys(name, size, before=False))
        for size in (*TILES, FAR):
            rows = "the sequence" if size == FAR else f"the tile of {size} rows"
            seen = f"{words}, where another row of {rows} sees them or keys beyond"
            yield Extent(seen, _tile_of_rows(name, size, 1))
            for keys in sizes_of(scene):
                yield Extent(f"{seen}, whole tiles of {keys} keys", _tile_of_rows(name, size, keys))
    for size in (*_UNITS, *sizes_of(scene)):
        yield Extent(
            f"keys from the declared length up to a multiple of {size}",
            partial(lambda s, t: (key_of(s) >= _lengths(s)) & (key_of(s) < -(-_lengths(s) // t) * t), t=size),
        )


def _lengths(scene: Scene) -> Tensor:
    return scene.at.keys[:, None, :, None]


def _up_to(count: int) -> str:
    return "the one" if count == 1 else f"up to {count}"


def hidden_by(scene: Scene, name: str) -> Tensor:
    """Bool: pairs that the part `name` of the mask alone hides; of all parts where it is empty."""
    if not name:
        return ~visible_of(scene)
    if ("hidden by", name) not in scene.memo:
        parts, wider = visible_parts(scene.case), widening(scene.case)
        if name not in parts:
            return torch.zeros((), dtype=torch.bool)
        found = ~parts[name]
        for other, seen in parts.items():
            if other != name:
                found = found & (seen | wider.get(other, torch.zeros((), dtype=torch.bool)))
        scene.memo["hidden by", name] = found & ~visible_of(scene)
    found_pairs: Tensor = scene.memo["hidden by", name]
    return found_pairs


def hidden_words(name: str) -> str:
    """Which keys `hidden_by` gives, in words."""
    return _HIDDEN.get(name, "hidden keys")


def _near(name: str, before: int, behind: int) -> Callable[[Scene], Tensor]:
    def where(scene: Scene) -> Tensor:
        first, last = ends_of(scene)
        key = key_of(scene)
        return hidden_by(scene, name) & (key >= first - before) & (key <= last + behind)

    return where


def _tile_of_keys(name: str, size: int, *, before: bool) -> Callable[[Scene], Tensor]:
    def where(scene: Scene) -> Tensor:
        first, last = ends_of(scene)
        key = key_of(scene)
        inside = (
            (key < first) & (key >= first // size * size)
            if before
            else (key > last) & (key < (last // size + 1) * size)
        )
        return hidden_by(scene, name) & inside & (first < FAR)

    return where


def _tile_of_rows(name: str, size: int, keys: int) -> Callable[[Scene], Tensor]:
    def where(scene: Scene) -> Tensor:
        low, high = of_tile(scene, size)
        key = key_of(scene)
        return hidden_by(scene, name) & (key >= low // keys * keys) & (key < (high // keys + 1) * keys) & (low < FAR)

    return where
