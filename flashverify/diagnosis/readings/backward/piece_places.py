"""Pairs whose row and key lie on the same or on different devices, where a sequence is spread over several, as for ring attention."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.devices import CUTS, TWO, counted_devices, devices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["pairs_by_pieces", "pairs_by_visits"]

_COUNTS = (2, 3, 4, 8)


def pairs_by_pieces() -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    """Words and pairs, bool `[1, 1, Sq, Sk]`, by how many pieces the key's lies behind the row's, in a ring."""
    for count in _COUNTS:
        for how, cut in CUTS:
            among = f"of {count} pieces {how}"
            yield f"where row and key lie in one piece, {among}", partial(_pairs, cut, count, 0, True)
            yield f"where row and key lie in different pieces, {among}", partial(_pairs, cut, count, 0, False)
            for ahead in range(1, count if count > 2 else 1):
                words = f"{ahead} behind that of the row in a ring, {among}"
                yield f"where the piece of the key is {words}", partial(_pairs, cut, count, ahead, True)
                yield f"where the piece of the key is not {words}", partial(_pairs, cut, count, ahead, False)


def pairs_by_visits(scene: Scene) -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    """Pairs that another visit of a ring follows or precedes: of a row that sees keys of another piece, or of a key that other rows see."""
    for name, (how, cut) in product((*counted_devices(scene), TWO), CUTS):
        among = f"of pieces {how}, one for each of the {name}"
        for which, later in (("but the last", True), ("but the first", False)):
            words = f"in all pieces of keys {which} that the row sees as a ring brings them, {among}"
            yield words, partial(_visited, cut, name, 3, later)
            words = f"in all pieces of rows {which} that see the key as it goes round a ring, {among}"
            yield words, partial(_visited, cut, name, 2, later)


def _visited(cut: Callable[[int, int], Tensor], name: str, axis: int, later: bool, scene: Scene) -> Tensor:
    """Keys come to a rank from the one before it: at step t it has those of the rank t before its own."""
    count = devices_of(scene, name)
    if not count:
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    rows, keys = cut(scene.case.seq_q, count), cut(scene.case.seq_k, count)
    step = ((rows[:, None] - keys[None, :]) % count)[None, None]
    see = torch.ones_like(step, dtype=torch.bool) if scene.inputs.visible is None else scene.inputs.visible
    far = -1 if later else count
    seen = torch.where(see, step, far)
    end = seen.amax(axis, keepdim=True) if later else seen.amin(axis, keepdim=True)
    found: Tensor = (step != end) & see
    return found


def _pairs(cut: Callable[[int, int], Tensor], count: int, ahead: int, there: bool, scene: Scene) -> Tensor:
    rows, keys = cut(scene.case.seq_q, count), cut(scene.case.seq_k, count)
    found = ((keys[None, :] - rows[:, None]) % count == ahead) == there
    return found[None, None]
