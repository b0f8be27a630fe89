"""Sets of pairs by the blocks of a pattern or of a selection: where a block lies, a place within it, and which of those that a row sees it is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.case.masks.predicate import visible_parts
from flashverify.diagnosis.readings.masks.extent import Extent
from flashverify.diagnosis.readings.masks.hidden import hidden_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Seen = Callable[[str, Callable[[Scene], Tensor]], Extent]

__all__ = ["hidden_blocks", "seen_blocks"]

_NO_PAIR = torch.zeros((), dtype=torch.bool)


class _Blocks(NamedTuple):
    """The number of the block of each row, `[Sq, 1]`, and of each key, `[1, Sk]`; the place of each key in its block, and keys of a block."""

    row: Tensor
    key: Tensor
    place: Tensor
    size: int


_SETS: tuple[tuple[str, Callable[[_Blocks], Tensor]], ...] = (
    ("keys of the block of the same number as the rows'", lambda x: x.row == x.key),
    ("keys of blocks of a lower number than the rows'", lambda x: x.key < x.row),
    ("keys of blocks of a higher number than the rows'", lambda x: x.key > x.row),
    ("keys of the first block", lambda x: x.key == 0),
    ("keys of the last block", lambda x: x.key == x.key.max()),
    ("keys of blocks of an odd number, counted from 0", lambda x: x.key % 2 == 1),
    ("keys of blocks of an even number, counted from 0", lambda x: x.key % 2 == 0),
)
_PLACES: tuple[tuple[str, Callable[[_Blocks], Tensor]], ...] = (
    ("the last key of each block", lambda x: x.place == x.size - 1),
    ("the first key of each block", lambda x: x.place == 0),
    ("all keys but the first of each block", lambda x: x.place > 0),
    ("the second half of each block", lambda x: x.place >= x.size // 2),
)


def seen_blocks(scene: Scene, wrong: Tensor, seen: Seen) -> Iterator[Extent]:
    """Sets of visible pairs; none without blocks.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`, visible pairs.
        seen: makes a set of visible pairs of a function of a case.
    """
    name = _name(scene)
    if name is None or not bool(wrong.any()):
        return
    for words, of in (*_PLACES, *_SETS):
        yield seen(words, partial(_where, of=of))
    rank = _rank(scene, name).expand(wrong.shape)[wrong]
    low, high = int(rank.min()), int(rank.max())
    if low > 0:
        first = "one" if low == 1 else f"{low}"
        yield seen(
            f"keys of the blocks behind the first {first} that the rows see, in ascending order",
            partial(_ranked, low=low, high=None),
        )
    if low == high:
        yield seen(
            f"keys of block {low} of those that the rows see, counted from 0", partial(_ranked, low=low, high=high)
        )
    elif low == 0:
        yield seen(f"keys of the first {high + 1} blocks that the rows see", partial(_ranked, low=0, high=high))
    yield seen("keys of the last block that the rows see", _last_seen)


def hidden_blocks(scene: Scene) -> Iterator[Extent]:
    """Sets of pairs that the blocks hide; none without blocks."""
    name = _name(scene)
    if name is None:
        return
    whose = "dead" if name == "blocks" else "not selected"
    for words, of in _SETS:
        yield Extent(
            f"{words}, where {'those are' if 'blocks' in words else 'that is'} {whose}",
            partial(lambda s, o: hidden_by(s, _name(s) or "blocks") & _where(s, o), o=of),
        )


def _name(scene: Scene) -> str | None:
    mask = scene.case.mask
    if mask.packed is not None:
        return None
    return "blocks" if mask.blocks is not None else "selection" if mask.selection is not None else None


def _blocks(scene: Scene) -> _Blocks | None:
    mask = scene.case.mask
    how = mask.blocks or mask.selection
    if how is None or mask.packed is not None:
        return None
    row, key = torch.arange(scene.case.seq_q)[:, None], torch.arange(scene.case.seq_k)[None, :]
    return _Blocks(row // how.rows, key // how.keys, key % how.keys, how.keys)


def _where(scene: Scene, of: Callable[[_Blocks], Tensor]) -> Tensor:
    found = _blocks(scene)
    return _NO_PAIR if found is None or not scene.case.seq_k else of(found).expand(found.row.shape[0], -1)


def _rank(scene: Scene, name: str) -> Tensor:
    """How many blocks that a row sees lie before the key's own, `[B or 1, Hq or 1, Sq, Sk]`."""
    found, part = _blocks(scene), visible_parts(scene.case)[name]
    assert found is not None
    begins = part & (found.place == 0)
    return begins.long().cumsum(-1) - 1


def _ranked(scene: Scene, low: int, high: int | None) -> Tensor:
    name = _name(scene)
    if name is None:
        return _NO_PAIR
    rank = _rank(scene, name)
    return rank >= low if high is None else (rank >= low) & (rank <= high)


def _last_seen(scene: Scene) -> Tensor:
    name = _name(scene)
    if name is None:
        return _NO_PAIR
    rank = _rank(scene, name)
    return rank == rank[..., -1:]
