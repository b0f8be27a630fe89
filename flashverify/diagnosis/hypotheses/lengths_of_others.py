"""Wrong semantics of whose length is taken: that of another sequence, or of the other side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Lengths = Callable[[Tensor, Tensor], Tensor]

__all__ = ["LENGTHS_OF_OTHERS", "banded", "changed_lengths"]


def _rows(change: Lengths) -> Callable[[Scene], Iterator[Alternative]]:
    """Other numbers of rows `[B]`, a function of those of rows and keys; the diagonal moves with them, or does not."""
    return changed_lengths(change, "query_lengths")


def _keys(change: Lengths) -> Callable[[Scene], Iterator[Alternative]]:
    """Other numbers of keys, likewise."""
    return changed_lengths(change, "key_lengths")


def changed_lengths(change: Lengths, which: str) -> Callable[[Scene], Iterator[Alternative]]:
    """Other `query_lengths` or `key_lengths`, `[B]`, a function of those of rows and keys; the diagonal moves with them, or does not."""

    def build(scene: Scene) -> Iterator[Alternative]:
        case, at, mask = scene.case, scene.at, scene.case.mask
        if mask.packed is not None or (mask.key_lengths is None and mask.query_lengths is None):
            return
        rows = torch.tensor(mask.query_lengths or (case.seq_q,) * case.batch)
        keys = torch.tensor(mask.key_lengths or (case.seq_k,) * case.batch)
        other = change(rows, keys)
        if torch.equal(other, rows if which == "query_lengths" else keys):
            return
        number = other.view(-1, 1, 1, 1)
        j = at.key[:, None, None, :]
        if which == "query_lengths":
            part = {"rows": at.row[:, None, :, None] < number}
            shift = keys.view(-1, 1, 1, 1) - number
        else:
            part = {"keys": j < number}
            shift = number - rows.view(-1, 1, 1, 1)
        yield Alternative(inputs=raw(scene, with_parts(scene, **part)))
        if mask.aligned_at_end:
            yield Alternative(inputs=raw(scene, with_parts(scene, **part, **banded(scene, shift))))

    return build


def _either(*builds: Callable[[Scene], Iterator[Alternative]]) -> Callable[[Scene], Iterator[Alternative]]:
    """The alternatives of all."""

    def build(scene: Scene) -> Iterator[Alternative]:
        for each in builds:
            yield from each(scene)

    return build


def _before(lengths: Tensor) -> Tensor:
    """That of the sequence before; the first one's own."""
    return lengths[(torch.arange(len(lengths)) - 1).clamp(min=0)]


def banded(scene: Scene, shift: Tensor) -> dict[str, Tensor]:
    """The causal mask and the window by another shift, which broadcasts to the pairs."""
    position = scene.at.row[:, None, :, None] + shift
    j, found = scene.at.key[:, None, None, :], {}
    left, right = scene.case.mask.window or (None, None)
    if scene.case.mask.causal is not None:
        found["causal"] = j <= position
    if left is not None:
        found["left"] = j >= position - left
    if right is not None:
        found["right"] = j <= position + right
    return found


def _multiple(lengths: tuple[int, ...], sign: int, size: int, room: int) -> tuple[int, ...]:
    return tuple(min(sign * -(-sign * length // size) * size, room) for length in lengths)


def _multiples(sign: int) -> Callable[[Scene], Iterator[Alternative]]:
    """Numbers of keys rounded up (`sign` 1) or down (-1) to a multiple, those up to the end of the buffer."""

    def build(scene: Scene) -> Iterator[Alternative]:
        room, lengths = scene.case.seq_k, scene.case.mask.key_lengths
        if lengths is None:
            return
        alike: dict[tuple[int, ...], list[int]] = {}
        for size in (2, 4, 8, *TILES):
            alike.setdefault(_multiple(lengths, sign, size, room), []).append(size)
        for sizes in alike.values():

            def rounded(_rows: Tensor, keys: Tensor, size: int = sizes[0]) -> Tensor:
                return (sign * -(-sign * keys // size) * size).clamp(max=room)

            for found in _keys(rounded)(scene):  # each size by its own name: another case tells them apart
                yield from (replace(found, detail=f"of {size}") for size in sizes)

    return build


_LIMITS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
"""Numbers of keys at which a length may be cut."""


def _at_most(scene: Scene) -> Iterator[Alternative]:
    """Numbers of keys that are cut at a number."""
    lengths = scene.case.mask.key_lengths
    for limit in _LIMITS if lengths is not None else ():
        found = changed_lengths(lambda _rows, keys, most=limit: keys.clamp(max=most), "key_lengths")  # type: ignore[misc]
        yield from (replace(each, detail=f"at most {limit}") for each in found(scene))


LENGTHS_OF_OTHERS = (
    Semantics(
        name="key-lengths-cut",
        sentence="the key lengths are cut at a number: a longer sequence is taken for one of so many keys",
        build=_at_most,
        one_way=True,
    ),
    Semantics(
        name="query-lengths-of-first-sequence",
        sentence="every sequence has the number of queries of the first one",
        build=_rows(lambda rows, _keys: rows[:1].expand_as(rows)),
    ),
    Semantics(
        name="query-lengths-of-next-sequence",
        sentence="a sequence has the number of queries of the next one",
        build=_rows(lambda rows, _keys: rows.roll(-1)),
    ),
    Semantics(
        name="query-lengths-one-less",
        sentence="the last query of each sequence is taken for padding",
        build=_rows(lambda rows, _keys: (rows - 1).clamp(min=0)),
    ),
    Semantics(
        name="query-lengths-of-keys",
        sentence="the key lengths are taken for those of the queries",
        build=_either(_rows(lambda _rows, keys: keys), _rows(torch.minimum)),
    ),
    Semantics(
        name="key-lengths-of-sequence-before",
        sentence="a sequence has the number of keys of the one before it",
        build=_either(_keys(lambda _rows, keys: keys.roll(1)), _keys(lambda _rows, keys: _before(keys))),
    ),
    Semantics(
        name="key-lengths-of-mirrored-sequence",
        sentence="a sequence has the number of keys of the one as far from the last one",
        build=_keys(lambda _rows, keys: keys.flip(0)),
    ),
    Semantics(
        name="query-lengths-of-mirrored-sequence",
        sentence="a sequence has the number of queries of the one as far from the last one",
        build=_rows(lambda rows, _keys: rows.flip(0)),
    ),
    Semantics(
        name="query-lengths-of-sequence-before",
        sentence="a sequence has the number of queries of the one before it",
        build=_either(_rows(lambda rows, _keys: rows.roll(1)), _rows(lambda rows, _keys: _before(rows))),
    ),
    Semantics(
        name="key-lengths-of-queries",
        sentence="the query lengths are taken for those of the keys",
        build=_keys(lambda rows, _keys: rows),
    ),
    Semantics(
        name="key-lengths-shortest-for-all",
        sentence="every sequence has the number of keys of the shortest one",
        build=_keys(lambda _rows, keys: keys.amin().expand_as(keys)),
    ),
    Semantics(
        name="key-lengths-at-least-one",
        sentence="a sequence without keys is taken to have one",
        build=_keys(lambda _rows, keys: keys.clamp(min=1)),
    ),
    Semantics(
        name="key-lengths-rounded-up",
        sentence="the key lengths are rounded up to a multiple: keys behind them take part with what they hold",
        build=_multiples(1),
    ),
    Semantics(
        name="key-lengths-rounded-down",
        sentence="the key lengths are rounded down to a multiple, and the keys behind it are left out",
        build=_multiples(-1),
    ),
)
