"""Wrong semantics of where dS is stored, of which the gradients of a bias and of a relative bias are sums: the place of another row, head or key."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.hypotheses.step_builds import has_gradients
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene

__all__ = ["STORED_PAIRS"]

_OUTPUTS = ("dbias", "drelative_bias")
_HOW = ("last", "first", "added", "visible")
"""What stays where several pairs are stored at one place: the last or the first one, or their sum; of the visible ones alone, the last."""


def _rows(scene: Scene) -> Iterator[tuple[str, Tensor]]:
    """For each row the number of the one in whose place it is stored, `[B, Hq, Sq]`, -1 for none, in words."""
    case, at, group = scene.case, scene.at, scene.group
    shape = case.shape_q[:3]
    own = torch.arange(shape[0] * shape[1] * shape[2]).view(shape)
    number = torch.arange(shape[2])
    heads = torch.arange(shape[1])
    line = own - number

    def there(row: Tensor) -> Tensor:
        """In another row of the head, `[B, Sq]`."""
        row = row.view(-1, 1, shape[2])
        return (line + row).masked_fill((row < 0) | (row >= shape[2]), -1)

    if case.mask.packed is not None:
        yield "in the row of that number of the first packed sequence", there(at.row)
        keys = torch.tensor([*case.mask.packed.cu_k, case.seq_k])[at.row_sequence.clamp(max=len(case.mask.packed.cu_k))]
        yield "from the row on that has the number of its sequence's first key", there(at.row + keys)
    if group > 1:
        yield "in the query head that has the number of its kv head", own[:, heads // group]
        yield "in the query head that has the number of the member of its group", own[:, heads % group]
        interleaved = heads % group * (shape[1] // group) + heads // group
        yield "in the query head that the order (member, kv head) gives", own[:, interleaved]
        yield "in the first query head of its group", own[:, heads // group * group]
    if shape[1] > 1:
        yield "in the first head", own[:, heads * 0]
        yield "in the next head", own[:, (heads + 1) % shape[1]]
        yield "in the head before", own[:, (heads - 1) % shape[1]]
        yield "as [B, Sq, Hq] in a tensor of [B, Hq, Sq]", own.view(shape[0], shape[2], shape[1]).mT
    if shape[0] > 1:
        yield "in the first sequence", own[:1].expand(shape)
        yield "in the next sequence", own.roll(-1, 0)
    yield "in the next row", there((number + 1).expand(shape[0], -1))
    yield "in the row before", there((number - 1).expand(shape[0], -1))
    yield "in the row of its number from the last one on", there(number - at.row + at.rows - 1 - at.row)
    if bool((at.shift != 0).any()):
        yield "in the row of its position", there(number + at.shift)
    for size in TILES:
        if size < shape[2]:
            yield f"in the row of that place of the first tile of {size}", there(number - at.row + at.row % size)


def _keys(scene: Scene) -> Iterator[tuple[str, Tensor]]:
    """For each pair the number of the key in whose place it is stored, in the row's own line; broadcasts to `[B, Hq, Sq, Sk]`."""
    key, row = scene.at.key[:, None, None, :], scene.at.row[:, None, :, None]
    if scene.case.mask.packed is not None:
        yield "at its key's place in the buffer", torch.arange(scene.case.seq_k).view(1, 1, 1, -1)
    yield "at the next key", key + 1
    yield "at the key before", key - 1
    yield "at the distance from the row, behind the first key", key - row
    for size in TILES:
        if size < scene.case.seq_k:
            yield f"at the key of that place of the first tile of {size}", key % size


def _strides(scene: Scene) -> Iterator[tuple[str, Tensor]]:
    """Elements from one row to the next, in place of the number of keys; broadcasts to `[B, Hq, Sq, Sk]`."""
    case = scene.case
    yield "by rows as long as their sequence has keys", scene.at.keys[:, None, :, None]
    yield "by rows as long as their number of keys within the length", scene.at.key_limit[:, None, None, :]
    yield "by rows as long as there are rows", torch.tensor(case.seq_q)
    for size in (8, *TILES):
        yield f"by rows of whole tiles of {size} keys", torch.tensor(-(-case.seq_k // size) * size)


def _places(scene: Scene) -> Iterator[tuple[str, Tensor]]:
    """For each pair the element that it is stored in, of `[B, Hq, Sq, Sk]` in which keys count within their sequence; -1 for none."""
    shape = (*scene.case.shape_q[:3], scene.case.seq_k)
    key = scene.at.key[:, None, None, :]
    own = torch.arange(shape[0] * shape[1] * shape[2]).view(shape[:3]).unsqueeze(-1)
    for words, row in _rows(scene):
        yield words, (row.unsqueeze(-1) * shape[3] + key).masked_fill(row.unsqueeze(-1) < 0, -1)
    for words, other in _keys(scene):
        yield words, (own * shape[3] + other).masked_fill((other < 0) | (other >= shape[3]), -1)
    for words, stride in _strides(scene):
        place = own * stride + key
        yield words, place.masked_fill(place >= shape[0] * shape[1] * shape[2] * shape[3], -1)
    number = scene.at.row[:, None, :, None]
    if shape[2] > 1 or shape[3] > 1:
        turned = (own - torch.arange(shape[2]).view(1, 1, -1, 1)) * shape[3] + key * shape[3] + number
        outside = (key >= shape[2]) | (number >= shape[3])
        yield "with row and key exchanged", turned.masked_fill(outside, -1)
        line = (own - torch.arange(shape[2]).view(1, 1, -1, 1)) * shape[3]
        yield "as [keys, rows] in memory of [rows, keys]", line + key * shape[2] + number


def _inside(scene: Scene) -> Tensor:
    """Bool `[B, 1, Sq, Sk]`: pairs of one sequence, of declared rows and keys."""
    at = scene.at
    one = at.row_sequence[:, None, :, None] == at.key_sequence[:, None, None, :]
    return one & (at.row < at.rows)[:, None, :, None] & (at.key < at.key_limit)[:, None, None, :]


def _stored(scene: Scene, place: Tensor, how: str, *values: Tensor) -> list[Tensor]:
    """What memory holds, `[B, Hq, Sq, Sk]`, 0 where nothing is stored."""
    shape = (*scene.case.shape_q[:3], scene.case.seq_k)
    kept = _inside(scene).expand(shape) & (place >= 0).expand(shape)
    if how == "visible" and scene.inputs.visible is not None:
        kept = kept & scene.inputs.visible.expand(shape)
    at = place.expand(shape)[kept]
    found = []
    for value in values:
        memory, stored = torch.zeros(value.numel(), dtype=torch.float64), value.expand(shape)[kept]
        if how == "added":
            memory.index_add_(0, at, stored)
        elif how == "first":
            memory.numpy()[at.flip(0).numpy()] = stored.flip(0).numpy()
        else:
            memory.numpy()[at.numpy()] = stored.numpy()  # of several values at one place the last stays
        found.append(memory.view(shape))
    return found


def _read(scene: Scene, memory: Tensor) -> Tensor:
    """Memory whose keys count within their sequence, pair by pair, those behind its length too."""
    at = scene.at
    one = at.row_sequence[:, None, :, None] == at.key_sequence[:, None, None, :]
    return torch.where(one, memory.gather(3, at.key[:, None, None, :].expand(memory.shape)), 0.0)


def _of_table(scene: Scene, memory: Tensor) -> Tensor | None:
    """The gradient of a relative bias that memory gives: each row by its own position, whatever is stored in it."""
    buckets, count, at = scene.problem.distance_buckets, scene.inputs.bucket_count, scene.at
    if buckets is None or count is None:
        return None
    reach = len(buckets) // 2
    distance = torch.arange(memory.shape[3]) - (at.row + at.shift)[:, :, None]
    entries = buckets.long()[distance.clamp(-reach, reach) + reach][:, None].expand(memory.shape)
    flat = entries.transpose(0, 1).flatten(1)
    return memory.new_zeros(memory.shape[1], count).scatter_add(1, flat, memory.transpose(0, 1).flatten(1))


def _change(scene: Scene, place: Tensor, how: str, s: Steps) -> Steps:
    value, size = _stored(scene, place, how, s.formula(), _sizes(s))
    none = torch.zeros_like(s.delta)
    return replace(
        s,
        p=torch.ones_like(s.p),
        dp=torch.zeros_like(s.dp),
        dp_size=_read(scene, size),
        delta=none,
        delta_size=none,
        dlse=none,
        ds=s.formula(),
        dbias_ds=_read(scene, value),
    )


def _sizes(s: Steps) -> Tensor:
    rows = torch.maximum(s.delta_size, s.delta.abs()) + s.dlse.abs()
    return s.p * (torch.maximum(s.dp_size, s.dp.abs()) + rows.unsqueeze(-1))


def _finish(scene: Scene, place: Tensor, how: str, found: Expectations) -> Expectations:
    """The declared distances at the places where the pairs are stored, and the table of what is stored."""
    if "dbias" in found and found["dbias"].total.shape == (*scene.case.shape_q[:3], scene.case.seq_k):
        x = found["dbias"]
        (moved,) = _stored(scene, place, how, scene.right["dbias"].total)
        found = {**found, "dbias": replace(x, total=x.total + _read(scene, moved))}
    return found if "drelative_bias" not in found else _table(scene, place, how, found)


def _table(scene: Scene, place: Tensor, how: str, found: Expectations) -> Expectations:
    """The table of what is stored, within the declared distance for each unit of what is summed."""
    assert scene.o is not None
    assert scene.lse is not None
    s, x = steps_of(scene.inputs, scene.o, scene.lse), found["drelative_bias"]
    own, (value, size) = _sizes(s), _stored(scene, place, how, s.formula(), _sizes(s))
    tables = (_of_table(scene, memory) for memory in (value, size, *_stored(scene, _own(scene), "last", own)))
    known = [table for table in tables if table is not None]
    if not known:
        return found
    new, larger, declared = known
    ratio = torch.nan_to_num(x.total / declared, 0.0, 0.0, 0.0).amax()
    return {**found, "drelative_bias": replace(x, value=new, total=ratio * larger + x.total, strict=None, zero=None)}


def _own(scene: Scene) -> Tensor:
    shape = (*scene.case.shape_q[:3], scene.case.seq_k)
    own = torch.arange(shape[0] * shape[1] * shape[2]).view(*shape[:3], 1)
    return own * shape[3] + scene.at.key[:, None, None, :]


def _build(scene: Scene) -> Iterator[Alternative]:
    i = scene.inputs
    if (
        not has_gradients(scene)
        or scene.o is None
        or scene.lse is None
        or (i.bias_shape is None and i.relative_buckets is None)
    ):
        return
    mine, inside = _own(scene), _inside(scene)
    for words, place in _places(scene):
        shape = (*scene.case.shape_q[:3], scene.case.seq_k)
        if torch.equal(place.expand(shape)[inside.expand(shape)], mine.expand(shape)[inside.expand(shape)]):
            continue
        for how in _HOW:
            yield Alternative(
                steps=partial(_change, scene, place, how), finish=partial(_finish, scene, place, how), detail=words
            )


STORED_PAIRS = (
    Semantics(
        name="ds-stored-elsewhere",
        sentence="dS, of which the gradient of a bias is made, is stored in the place of another row, head or key",
        build=_build,
        outputs=_OUTPUTS,
        one_way=True,
    ),
)
