"""Wrong semantics of queries behind a cached prefix: the keys before the first row, counted from the end of the sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import tiles, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["CACHED_PREFIX"]


def _prefix(scene: Scene) -> tuple[Tensor, Tensor]:
    """Number of each key and keys of the cached prefix of each row's sequence, which broadcast to `[B, 1, Sq, Sk]`."""
    at = scene.at
    return at.key[:, None, None, :], (at.keys - at.rows).clamp(min=0)[:, None, :, None]


def _dropped(
    which: Callable[[Tensor, Tensor, int], Tensor], *, tiled: bool
) -> Callable[[Scene], Iterator[Alternative]]:
    """The keys for which `which` (key, prefix, tile) holds are left out."""

    def build(scene: Scene) -> Iterator[Alternative]:
        key, prefix = _prefix(scene)
        for size in tiles(scene) if tiled else (1,):
            dropped = which(key, prefix, size)
            if bool(dropped.any()):
                detail = f"a tile of {size} keys" if tiled else ""
                yield Alternative(inputs=with_parts(scene, cached=~dropped), detail=detail)

    return build


def _as_many_as_rows(scene: Scene) -> Iterator[Alternative]:
    """A loop over the keys that ends at the number of rows, declared or of the buffer."""
    key, at = scene.at.key[:, None, None, :], scene.at
    declared = at.rows[:, None, :, None]
    for rows, detail in ((declared, ""), (torch.full_like(declared, scene.case.seq_q), "of the buffer")):
        kept = key < rows
        if bool((~kept & (key < at.keys[:, None, :, None])).any()) and (not detail or not torch.equal(rows, declared)):
            yield Alternative(inputs=with_parts(scene, walked=kept), detail=detail)


CACHED_PREFIX = (
    Semantics(
        name="keys-limited-to-rows",
        sentence="no more keys count than there are rows: those from there on are left out",
        build=_as_many_as_rows,
    ),
    Semantics(
        name="cached-prefix-tail-dropped",
        sentence="the keys of a cached prefix behind its last whole tile are left out",
        build=_dropped(lambda key, prefix, size: (key >= prefix // size * size) & (key < prefix), tiled=True),
    ),
    Semantics(
        name="cached-prefix-begins-late",
        sentence="the keys of a cached prefix before its first whole tile are left out",
        build=_dropped(lambda key, prefix, size: key < prefix % size, tiled=True),
    ),
    Semantics(
        name="new-keys-begin-late",
        sentence="the keys between a cached prefix and the next multiple of the tile are left out",
        build=_dropped(lambda key, prefix, size: (key >= prefix) & (key < -(-prefix // size) * size), tiled=True),
    ),
    Semantics(
        name="cached-prefix-last-key-missing",
        sentence="the last key of a cached prefix is left out",
        build=_dropped(lambda key, prefix, _size: key == prefix - 1, tiled=False),
    ),
    Semantics(
        name="cached-prefix-ignored",
        sentence="the keys of a cached prefix, those before the first row, are left out",
        build=_dropped(lambda key, prefix, _size: key < prefix, tiled=False),
    ),
)
