"""Pairs whose row and key lie on the same or on different devices, where a sequence is spread over several, as for ring attention."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.devices import CUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["pairs_by_pieces"]

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


def _pairs(cut: Callable[[int, int], Tensor], count: int, ahead: int, there: bool, scene: Scene) -> Tensor:
    rows, keys = cut(scene.case.seq_q, count), cut(scene.case.seq_k, count)
    found = ((keys[None, :] - rows[:, None]) % count == ahead) == there
    return found[None, None]
