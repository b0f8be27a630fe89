"""Wrong semantics of how many rows and keys a packed sequence has: those of its neighbours are counted as its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypotheses.packed_places import packed_tables, pairs_seen
from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations, Finish
    from flashverify.diagnosis.observation import Scene

__all__ = ["PACKED_COUNTS"]

_OF_ROWS, _OF_KEYS = ("o", "lse", "delta", "dq"), ("dk", "dv")


def _counted(by: Callable[[Tensor], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """Other numbers of keys, and of rows as well, in a kernel of which each program stores over what the one before it stored.

    Where both numbers are wrong, a row belongs to the last sequence that begins before it, which is its own one, and so does a key. Nothing is
    asked of what is read behind the end of a buffer, nor of what is stored there: at the begin of the next head.
    """

    def build(scene: Scene) -> Iterator[Alternative]:
        tables = packed_tables(scene)
        if tables is None:
            return
        first, count, begin, rows = tables
        keys, more = by(count), by(rows)
        at, last = scene.at, len(first) - 1
        own = at.row_sequence.clamp(max=last)
        beyond = (first + keys > scene.case.seq_k)[own] & (at.row_sequence <= last)
        moved = scene.case.mask.aligned_at_end and not torch.equal(more, rows)
        for number in (rows, more) if moved else (rows,):
            see = pairs_seen(scene, first, keys, at.row_sequence, at.row, number[own])
            inputs = raw(scene, replace(scene.inputs, visible=see))
            yield Alternative(inputs=inputs, finish=_open(beyond, _behind(begin, more, scene.case.seq_q), _OF_ROWS))
        if scene.case.grad.backward:
            yield _of_keys(scene, tables, keys, more)

    return build


def _of_keys(scene: Scene, tables: tuple[Tensor, Tensor, Tensor, Tensor], keys: Tensor, rows: Tensor) -> Alternative:
    """Gradients of keys that sum as many rows from the first one of their own sequence on."""
    first, _, begin, _ = tables
    at, mask, last = scene.at, scene.case.mask, len(begin) - 1
    own = at.key_sequence.clamp(max=last)
    row = torch.arange(scene.case.seq_q).view(1, 1, -1, 1) - begin[own][:, None, None, :]
    count = rows[own][:, None, None, :]
    key = at.key[:, None, None, :]
    see = (row >= 0) & (row < count) & (at.key_sequence <= last)[:, None, None, :]
    position = row + (keys[own][:, None, None, :] - count if mask.aligned_at_end else 0)
    left, right = mask.window or (None, None)
    if mask.causal is not None:
        see = see & (key <= position)
    if left is not None:
        see = see & (key >= position - left)
    if right is not None:
        see = see & (key <= position + right)
    beyond = (begin + rows > scene.case.seq_q)[own] & (at.key_sequence <= last)
    inputs = raw(scene, replace(scene.inputs, visible=see))
    return Alternative(
        inputs=inputs, finish=_open(beyond, _behind(first, keys, scene.case.seq_k), _OF_KEYS), outputs=_OF_KEYS
    )


def _behind(begin: Tensor, count: Tensor, size: int) -> int:
    """How many rows or keys of the last sequence that reaches farthest lie behind the end of the buffer."""
    return max(int((begin + count).max()) - size, 0)


def _open(where: Tensor, stored: int, names: tuple[str, ...]) -> Finish | None:
    """Asks nothing of the rows or keys `where`, `[B, S]`, and of the first `stored` ones of every head but the first; None where there are none."""
    if not bool(where.any()) and not stored:
        return None

    def finish(found: Expectations) -> Expectations:
        changed = {}
        for name in names:
            if name in found:
                shape = found[name].value.shape
                lost = where[:, None, :].expand(*shape[:3]).clone()
                lost[:, 1:, :stored] = True
                changed[name] = found[name].open(lost if len(shape) == 3 else lost.unsqueeze(-1))
        return found | changed

    return finish


PACKED_COUNTS = (
    Semantics(
        name="packed-one-key-more",
        sentence="a packed sequence also sees the first key of the next one",
        build=_counted(lambda n: n + 1),
    ),
    Semantics(
        name="packed-longest-for-all",
        sentence="every packed sequence is taken to have as many keys as the longest",
        build=_counted(lambda n: n.max().expand_as(n)),
    ),
)
