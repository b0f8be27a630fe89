"""Places of rows: the sequence, head and row that stand where another one is asked for, as layouts and groups of heads confuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.devices import TWO, counted_devices, devices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Place = tuple[Tensor, Tensor, Tensor]
    """Sequence, head and row, int64 `[B, Hq, Sq]` each."""
    _Heads = Callable[[Tensor, int, int], Tensor]

__all__ = ["folds", "head_places", "own_places", "row_places", "taken"]

_HEADS: tuple[tuple[str, _Heads], ...] = (
    ("the head that the order (member, kv head) gives", lambda h, kv, group: h % kv * group + h // kv),
    ("the head that the order (kv head, member) gives", lambda h, kv, group: h % group * kv + h // group),
    ("the member as far from the end of its group", lambda h, _kv, group: h // group * group + group - 1 - h % group),
    ("the head as far from the last one", lambda h, kv, group: kv * group - 1 - h),
    ("the first head of its group", lambda h, _kv, group: h // group * group),
    ("the head with the number of its kv head", lambda h, _kv, group: h // group),
    ("the last head of its group", lambda h, _kv, group: h // group * group + group - 1),
    ("the head with the number of its member", lambda h, _kv, group: h % group),
    ("head h % Hkv", lambda h, kv, _group: h % kv),
    ("the last head", lambda h, kv, group: 0 * h + kv * group - 1),
    ("the head before, before the first the last one", lambda h, kv, group: (h - 1) % (kv * group)),
)


def own_places(scene: Scene) -> Place:
    """The places themselves."""
    b, h, i = torch.meshgrid(*(torch.arange(n) for n in scene.case.shape_q[:3]), indexing="ij")
    return b, h, i


def taken(x: Tensor, place: Place) -> Tensor:
    """`x` `[B or 1, Hq or 1, Sq or 1, ...]` at other places, `[B, Hq, Sq, ...]`."""
    b, h, i = (0 * at if size == 1 else at for at, size in zip(place, x.shape[:3], strict=True))
    return x[b, h, i]


def row_places(scene: Scene, heads: int = len(_HEADS)) -> Iterator[tuple[str, Place]]:
    """Every other place, in words; none that is the row's own on the whole case.

    Args:
        scene: a run.
        heads: how many of the other heads are asked, those first that no simpler semantics is about.
    """
    yield from folds(scene)
    yield from _first_rows(scene)
    yield from head_places(scene, heads)
    yield from _sequences(scene)


def head_places(scene: Scene, count: int = len(_HEADS)) -> Iterator[tuple[str, Place]]:
    """Other heads, the first `count` of them."""
    own = own_places(scene)
    for words, to in _HEADS[:count]:
        moved = to(own[1], scene.case.heads_kv, scene.group)
        if not torch.equal(moved, own[1]):
            yield words, (own[0], moved, own[2])
    if count == len(_HEADS):
        yield from _on_devices(scene)


def _on_devices(scene: Scene) -> Iterator[tuple[str, Place]]:
    """Heads that are dealt out to devices, each of which counts them from 0."""
    b, h, i = own_places(scene)
    heads = h.shape[1]
    for name in (*counted_devices(scene), TWO):
        count = devices_of(scene, name)
        if 1 < count <= heads:
            begins = torch.tensor([heads * n // count for n in range(count)])
            own = torch.bucketize(h.contiguous(), begins, right=True) - 1
            yield "the head of the first device with its number on its own one", (b, h - begins[own], i)


def folds(scene: Scene) -> Iterator[tuple[str, Place]]:
    """Rows of several heads that are laid out in one order and read in another one; rows of packed sequences are left out."""
    case = scene.case
    if case.mask.packed is not None or case.seq_q < 2:
        return
    b, h, i = own_places(scene)
    for whose, count in (("its group", scene.group), ("all heads", case.heads_q)):
        if count < 2:
            continue
        first, member, rows = h // count * count, h % count, case.seq_q
        flat = member * rows + i
        yield (
            f"the rows of {whose} lie row by row and are read head by head",
            (b, first + flat % count, flat // count),
        )
        flat = i * count + member
        yield (
            f"the rows of {whose} lie head by head and are read row by row",
            (b, first + flat // rows, flat % rows),
        )


def _first_rows(scene: Scene) -> Iterator[tuple[str, Place]]:
    """Rows of packed sequences that are looked for where those of the first one lie."""
    if scene.case.mask.packed is None:
        return
    b, h, i = own_places(scene)
    row = scene.at.row.clamp(0, max(scene.case.seq_q - 1, 0))[:, None].expand_as(i)
    if not torch.equal(row, i):
        yield "the row of the buffer that has its number inside its sequence", (b, h, row)


def _sequences(scene: Scene) -> Iterator[tuple[str, Place]]:
    b, h, i = own_places(scene)
    batch, heads = b.shape[:2]
    if batch < 2:
        return
    yield "the sequence as far from the last one", (batch - 1 - b, h, i)
    yield "the sequence before, before the first the last one", ((b - 1) % batch, h, i)
    yield "the sequence before, the first one's own", ((b - 1).clamp(min=0), h, i)
    yield "the last sequence", (0 * b + batch - 1, h, i)
    if heads > 1:
        flat = b * heads + h
        yield (
            "the sequence and head that stand there in the order of heads and sequences",
            (flat % batch, flat // batch, i),
        )
        flat = h * batch + b
        yield "the sequence and head of number h * B + b", (flat // heads, flat % heads, i)
