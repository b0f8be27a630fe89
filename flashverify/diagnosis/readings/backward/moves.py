"""Other rows, keys, heads and sequences from which a backward may read: for each place the number of the place that is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.hypothesis import TILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["Move", "key_moves", "moved", "row_moves"]


class Move(NamedTuple):
    """Where values are read.

    Attributes:
        words: of the place, such as `row i + 1`.
        number: for every place `[B, Hq, S]` the number of the place that is read, of all in the order of memory; -1 reads 0.
    """

    words: str
    number: Tensor


def moved(x: Tensor, move: Move) -> Tensor:
    """`x`, `[B, Hq, S, ...]`, as it is read."""
    flat = x.reshape(-1, *x.shape[3:])
    found = flat[move.number.clamp(min=0)]
    gone = (move.number < 0).view(*move.number.shape, *(1,) * (x.dim() - 3))
    return found.masked_fill(gone, 0.0)


def row_moves(scene: Scene) -> dict[str, Move]:
    """Places that the values of a row may be read from, by their words; those that are no place of their own are left out."""
    if "row_moves" not in scene.memo:
        scene.memo["row_moves"] = _apart(_of_rows(scene))
    found: dict[str, Move] = scene.memo["row_moves"]
    return found


def key_moves(scene: Scene) -> dict[str, Move]:
    """Places that the values of a key may be read from, likewise; the heads are those of the query."""
    if "key_moves" not in scene.memo:
        scene.memo["key_moves"] = _apart(_of_keys(scene))
    found: dict[str, Move] = scene.memo["key_moves"]
    return found


def _apart(moves: Iterator[Move]) -> dict[str, Move]:
    return {move.words: move for move in moves}


def _of_rows(scene: Scene) -> Iterator[Move]:
    case, at = scene.case, scene.at
    shape = case.shape_q[:3]
    own = torch.arange(shape[0] * shape[1] * shape[2]).view(shape)
    yield from _along(own, "row i")
    yield from _in_tiles(own, at.row, at.rows, "row")
    if case.mask.packed is not None:
        yield from _packed(own, at.row, at.row_sequence, "row")
    else:
        rows = at.rows.clamp(min=1)
        yield Move("the last row of the sequence", own.gather(2, _wide((rows - 1).clamp(max=shape[2] - 1), own)))
    yield from _heads(own, scene.group)
    yield from _in_walks(own, at.row, at.rows, scene.group)
    yield from _sequences(own)
    yield from _in_memory(own)


def _of_keys(scene: Scene) -> Iterator[Move]:
    case = scene.case
    shape = (case.batch, case.heads_q, case.seq_k)
    own = torch.arange(shape[0] * shape[1] * shape[2]).view(shape)
    yield from _along(own, "key j")
    yield from _in_tiles(own, scene.at.key, scene.at.key_limit.expand_as(scene.at.key), "key")
    if case.mask.packed is not None:
        yield from _packed(own, scene.at.key, scene.at.key_sequence, "key")
    group = scene.group
    heads = torch.arange(case.heads_kv)
    for words, other in (
        ("the next kv head", (heads + 1) % len(heads)),
        ("the kv head before", (heads - 1) % len(heads)),
        ("the first kv head", heads * 0),
        ("the kv head of the query head modulo the number of kv heads", None),
    ):
        if other is None:
            chosen = torch.arange(case.heads_q) % case.heads_kv * group
        else:
            chosen = other.repeat_interleave(group) * group
        yield Move(words, own[:, chosen])
    yield from _sequences(own)


def _wide(number: Tensor, own: Tensor) -> Tensor:
    return number[:, None, :].expand(own.shape)


def _along(own: Tensor, name: str) -> Iterator[Move]:
    size = own.shape[2]
    if size < 2:
        return
    for step in (1, -1, 2, -2):
        words = f"{name} {'+' if step > 0 else '-'} {abs(step)}"
        inside = own.roll(-step, 2)
        edge = slice(size - step, size) if step > 0 else slice(0, -step)
        ended = inside.clone()
        ended[:, :, edge] = -1
        yield Move(words, ended)
        held = inside.clone()
        held[:, :, edge] = own[:, :, edge]
        yield Move(f"{words}, or its own at the edge", held)
        flat = own + step
        yield Move(
            f"{words}, of the neighbouring head at the edge", flat.masked_fill((flat < 0) | (flat >= own.numel()), -1)
        )
        yield Move(f"{words}, in a ring", inside)
    yield Move(f"the first {name.split()[0]}", own[:, :, :1].expand(own.shape))
    yield Move(f"the {name.split()[0]}s in reverse", own.flip(2))


def _in_tiles(own: Tensor, place: Tensor, length: Tensor, name: str) -> Iterator[Move]:
    """Places by tiles: that of the same place in the first tile, in the one before or behind, and the first of the tile.

    `place` is the number in the sequence, `length` how many count there; behind these nothing is read.
    """
    place, length = _wide(place, own), _wide(length, own)
    for size in TILES:
        within = place % size
        yield Move(f"the {name} of that place in the first tile of {size}", own - place + within)
        yield Move(f"the first {name} of its tile of {size}", own - within)
        yield Move(f"the {name} at that place of the tile of {size} before", own - size * (place >= size))
        first = (own - size).masked_fill(place < size, -1)
        yield Move(f"the {name} at that place of the tile of {size} before, nothing in the first tile", first)
        ended = (own + size).masked_fill(place + size >= length, -1)
        yield Move(f"the {name} at that place of the tile of {size} behind", ended)


def _in_walks(own: Tensor, row: Tensor, rows: Tensor, group: int) -> Iterator[Move]:
    """The same place of the next tile, and of the one before, in a walk over the rows of all heads of a group; nothing behind its ends."""
    row, rows = _wide(row, own), _wide(rows, own)
    member = (torch.arange(own.shape[1]) % group).view(1, -1, 1)
    start = own - row
    for size in TILES:
        within, tile, last = row % size, row // size, (rows - 1).clamp(min=0) // size
        for words, step, at_end, other, there in (
            ("next tile", 1, tile == last, within, member < group - 1),
            ("tile before", -1, tile == 0, last * size + within, member > 0),
        ):
            found = torch.where(at_end, other, row + step * size)
            head = torch.where(at_end, step * own.shape[2], 0)
            gone = (found >= rows) | (at_end & ~there)
            yield Move(
                f"the row at that place of the {words} of {size} rows in a walk over the rows of all heads of the group",
                (start + head + found).masked_fill(gone, -1),
            )


def _packed(own: Tensor, place: Tensor, sequence: Tensor, name: str) -> Iterator[Move]:
    """The place of that number in another packed sequence, counted from where that begins; behind the buffer nothing is read."""
    yield Move(f"the {name} of that number in the first packed sequence", own.gather(2, _wide(place, own)))
    start = torch.arange(own.shape[2]) - place
    begins = {int(n): int(first) for n, first in zip(sequence[0], start[0], strict=True)}
    for words, step in (("before", -1), ("behind", 1)):
        other = torch.tensor([begins.get(int(n) + step, begins[int(n)]) for n in sequence[0]])
        number = (other + place[0]).expand(own.shape)
        there = own.gather(2, number.clamp(max=own.shape[2] - 1))
        yield Move(
            f"the {name} of that number in the packed sequence {words}", there.masked_fill(number >= own.shape[2], -1)
        )


def _heads(own: Tensor, group: int) -> Iterator[Move]:
    heads = own.shape[1]
    number = torch.arange(heads)
    for words, other in (
        ("the first query head", number * 0),
        ("the next query head", (number + 1) % heads),
        ("the query head before", (number - 1) % heads),
        ("the last query head", number * 0 + heads - 1),
        ("the first query head of the group", number // group * group),
        ("the last query head of the group", number // group * group + group - 1),
        ("the query head that has the number of the kv head", number // group),
        ("the query head that has the number of the member of the group", number % group),
        ("query head h % Hkv", number % (heads // group)),
        (
            "the query head of the group that has its number from the end",
            number // group * group + group - 1 - number % group,
        ),
        ("the next query head of the group, in a ring", number // group * group + (number + 1) % group),
        ("query head (h % Hkv) * group + h // Hkv", number % (heads // group) * group + number // (heads // group)),
        ("query head (h % group) * Hkv + h // group", number % group * (heads // group) + number // group),
    ):
        yield Move(words, own[:, other])


def _sequences(own: Tensor) -> Iterator[Move]:
    batch = own.shape[0]
    yield Move("the first sequence", own[:1].expand(own.shape))
    yield Move("the next sequence", own[(torch.arange(batch) + 1) % batch])
    yield Move("the last sequence", own[-1:].expand(own.shape))


def _in_memory(own: Tensor) -> Iterator[Move]:
    """Places of a tensor in one layout that is read in another one."""
    batch, heads, rows = own.shape
    if heads > 1 and rows > 1:
        yield Move(
            "the row and head that stand there in memory if it is read as [B, Sq, Hq]",
            own.reshape(batch, rows, heads).mT,
        )
        yield Move(
            "the row and head that stand there in memory if it is [B, Sq, Hq] and read as [B, Hq, Sq]",
            own.mT.reshape(own.shape),
        )
    if heads > 1 and batch > 1:
        by_head = own.reshape(heads, batch, rows).transpose(0, 1)
        yield Move("the sequence and head that stand there in memory if it is read as [Hq, B, Sq]", by_head)
