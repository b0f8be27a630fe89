"""Wrong semantics of a walk over the keys of a window in which V begins elsewhere than K."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Expectations, Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["VALUES_OF_WALKS"]

_MOST = 8
"""Begins of walks, each of which takes a forward."""
_O = frozenset({"o"})


def _from_the_first_key(scene: Scene) -> Iterator[Alternative]:
    """The walk of a tile of rows begins at the tile of keys that its first row sees first; of V it takes as many keys before."""
    case, at = scene.case, scene.at
    left = (case.mask.window or (None, None))[0]
    if left is None or case.mask.packed is not None or case.quantised is not None or not case.seq_q:
        return
    made: dict[bytes, Alternative] = {}
    for rows, keys in product(TILES, TILES):
        begin = (at.row // rows * rows + at.shift - left).clamp(min=0) // keys * keys
        begins = set(begin.flatten().tolist())
        if begins == {0} or len(begins) > _MOST or max(begins) >= case.seq_k:
            continue
        key = bytes(begin.numpy().tobytes())
        if key not in made:
            made[key] = Alternative(finish=lambda found, begin=begin: _moved(scene, found, begin))  # type: ignore[misc]
        yield replace(made[key], detail=f"tiles of {rows} rows and {keys} keys")


def _moved(scene: Scene, found: Expectations, begin: Tensor) -> Expectations:
    if "o" not in found:
        return found
    o, v = found["o"], scene.inputs.v
    for by in set(begin.flatten().tolist()):
        if by:
            values = torch.nn.functional.pad(v, (0, 0, by, 0))[:, :, : v.shape[2]]
            other = scene.expect(Alternative(inputs=replace(scene.inputs, v=values)), _O)["o"]
            o = other.within((begin == by)[:, None, :, None], o)
    return found | {"o": o}


VALUES_OF_WALKS = (
    Semantics(
        name="values-from-the-first-key",
        sentence="the values are read from the first key on, where the walk over the keys of a window begins at a later one",
        build=_from_the_first_key,
        outputs=("o",),
    ),
)
