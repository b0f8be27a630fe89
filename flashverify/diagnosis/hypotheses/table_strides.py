"""Wrong semantics of tables that are laid out by one length and read by another: bitmaps, patterns of blocks, a bias."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.patterns import bitmap_tensor, blocks_tensor
from flashverify.diagnosis.hypotheses.terms import split_biases, with_biases
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import spread_blocks, with_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["TABLE_STRIDES"]

_WORD = 32
"""Keys of a word of a bitmap."""


def _lengths(scene: Scene) -> Iterator[tuple[str, Tensor]]:
    """Keys that a row of a table may be taken to have, `[B, 1]`, in words; those of its room are declared."""
    case, mask = scene.case, scene.case.mask
    room = torch.full((case.batch, 1), case.seq_k)
    if mask.packed is None:
        keys = torch.tensor(mask.key_lengths or (case.seq_k,) * case.batch).view(-1, 1)
        rows = torch.tensor(mask.query_lengths or (case.seq_q,) * case.batch).view(-1, 1)
        yield "the key length of the sequence", keys
        yield "the longest key length", keys.amax().expand_as(keys)
        yield "the key length of the first sequence", keys[:1].expand_as(keys)
        yield "the key length of the next sequence", keys.roll(-1, 0)
        yield "the query length of the sequence", rows
    elif scene.at.keys.numel():
        yield "the keys of the longest sequence", scene.at.keys.amax().expand_as(room)
    yield "the number of rows", torch.full_like(room, case.seq_q)
    for size in (8, *TILES):
        yield f"the number of keys rounded up to a multiple of {size}", -(-room // size) * size


def _read(scene: Scene, table: Tensor, length: Tensor, unit: int, *, heads: bool) -> Tensor | None:
    """A table `[B or 1, Hq or 1, rows, columns]` whose rows begin as many columns apart as hold `length` keys, `unit` each.

    None where that is as declared, or leads out of the table.

    Args:
        scene: the case.
        table: as it lies in memory.
        length: `[B, 1]`.
        unit: keys of a column.
        heads: the table of each head begins accordingly; else as declared.
    """
    batch, count, rows, columns = table.shape[0], table.shape[1], table.shape[2], table.shape[3]
    apart = -(-length // unit).view(-1, 1, 1, 1)
    if not bool((apart != columns).any()):
        return None
    b = torch.arange(scene.case.batch).view(-1, 1, 1, 1) if batch > 1 else torch.zeros(scene.case.batch, 1, 1, 1).long()
    first = (b * count + torch.arange(count).view(1, -1, 1, 1)) * rows * (apart if heads else columns)
    at = first + torch.arange(rows).view(1, 1, -1, 1) * apart + torch.arange(columns)
    used = torch.arange(columns) * unit < scene.at.key_limit[:, :1].view(-1, 1, 1, 1)
    last = batch * count * rows * columns
    return None if bool((used & (at >= last)).any()) else table.flatten(0, 3)[at.clamp(max=last - 1)]


def _alternatives(scene: Scene, table: Tensor, unit: int) -> Iterator[tuple[str, Tensor]]:
    """Every other reading, in words."""
    for words, length in _lengths(scene):
        for heads in (False, True) if table.shape[0] * table.shape[1] > 1 else (False,):
            found = _read(scene, table, length, unit, heads=heads)
            if found is not None:
                yield f"{words}{', those of heads likewise' if heads else ''}", found


def _bitmap(scene: Scene) -> Iterator[Alternative]:
    """Rows of bits, or of words of as many."""
    bits = bitmap_tensor(scene.case)
    if bits is None or not bits.numel():
        return
    padded = torch.nn.functional.pad(bits, (0, -bits.shape[-1] % _WORD))
    words = padded.reshape(*bits.shape[:3], -1, _WORD)
    for unit, table in ((_WORD, words), (1, bits.unsqueeze(-1))):
        for detail, found in _alternatives(scene, table, unit):
            yield Alternative(
                inputs=with_parts(scene, bitmap=found.flatten(-2)[..., : scene.case.seq_k]), detail=detail
            )


def _blocks(scene: Scene) -> Iterator[Alternative]:
    live, blocks = blocks_tensor(scene.case), scene.case.mask.blocks
    if live is None or blocks is None or not live.numel():
        return
    for detail, found in _alternatives(scene, live, blocks.keys):
        yield Alternative(inputs=with_parts(scene, blocks=spread_blocks(scene, found)), detail=detail)


def _bias(scene: Scene) -> Iterator[Alternative]:
    bias, alibi = split_biases(scene)
    if bias is None or not bias.numel() or bias.shape[2] != scene.case.seq_q or bias.shape[3] != scene.case.seq_k:
        return
    for detail, found in _alternatives(scene, bias, 1):
        yield Alternative(inputs=with_biases(scene, found, alibi), detail=detail)


def _relative(scene: Scene) -> Iterator[Alternative]:
    """The table of a relative bias, of entries or spread over distances, whose heads begin as many numbers apart as another length."""
    table, buckets = scene.problem.relative_bias, scene.problem.distance_buckets
    if table is None or buckets is None or len(table) < 2:
        return
    term = scene.inputs.relative_buckets[:, 0]
    at, reach = scene.at, len(buckets) // 2
    distance = (at.key[:, None, :] - (at.row + at.shift)[:, :, None]).clamp(-reach, reach) + reach
    for words, flat, place in (
        ("of entries", table.double(), term),
        ("of distances", table.double()[:, buckets.long()], distance),
    ):
        count = flat.shape[1]
        lengths = {count - 1: "one less", count + 1: "one more", count - 2: "two less", count // 2: "half as many"}
        lengths |= {-(-count // size) * size: f"rounded up to a multiple of {size}" for size in (2, 4, 8, *TILES)}
        for length, detail in lengths.items():
            first = torch.arange(len(flat)).view(-1, 1, 1, 1) * length
            read = first + place
            if length != count and length > 0 and read.numel() and int(read.max()) < flat.numel():
                other = flat.flatten()[read].transpose(0, 1)
                inputs = replace(scene.inputs, biases=(*scene.inputs.biases[:-1], other))
                yield Alternative(inputs=inputs, detail=f"{words}, {detail}")


TABLE_STRIDES = (
    Semantics(
        name="bitmap-rows-by-another-length",
        sentence="the rows of the bitmap are looked for as if they were of another length",
        build=_bitmap,
        one_way=True,
    ),
    Semantics(
        name="blocks-rows-by-another-length",
        sentence="the rows of the block-sparse pattern are looked for as if they were of another length",
        build=_blocks,
        one_way=True,
    ),
    Semantics(
        name="bias-rows-by-another-length",
        sentence="the rows of the bias are looked for as if they were of another length",
        build=_bias,
        one_way=True,
    ),
    Semantics(
        name="relative-bias-rows-by-another-length",
        sentence="the rows of the table of the relative bias are looked for as if they were of another length",
        build=_relative,
        one_way=True,
    ),
)
