"""Wrong semantics of block-sparse patterns and bitmaps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.patterns import bitmap_tensor, blocks_tensor
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import exchanged, of_heads_open, parts, spread_blocks, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["PATTERNS"]

_WORD = 32


def _bitmap(change: Callable[[Tensor], Tensor | None]) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        bits = bitmap_tensor(scene.case)
        if bits is not None and bits.numel():
            changed = change(bits)
            if changed is not None:
                yield Alternative(inputs=with_parts(scene, bitmap=changed))

    return build


def _reversed_words(bits: Tensor) -> Tensor:
    """Bit 31 - n of each word of 32 keys in place of bit n; what fills the last word is unset."""
    width = bits.shape[-1]
    key = torch.arange(width)
    source = key // _WORD * _WORD + _WORD - 1 - key % _WORD
    return bits[..., source.clamp(max=width - 1)] & (source < width)


def _transposed(bits: Tensor) -> Tensor | None:
    return bits.mT if bits.shape[-1] == bits.shape[-2] else None


def _exchanged(scene: Scene) -> Iterator[Alternative]:
    bits = bitmap_tensor(scene.case)
    if bits is not None and bits.shape[0] * bits.shape[1] > 1:
        changed, lost = exchanged(bits, scene.case.batch, scene.case.heads_q)
        yield Alternative(inputs=with_parts(scene, bitmap=changed), finish=of_heads_open(scene, lost))


def _of_kv_head(scene: Scene) -> Iterator[Alternative]:
    bits = bitmap_tensor(scene.case)
    if bits is not None and bits.shape[1] > 1 and scene.group > 1:
        yield Alternative(inputs=with_parts(scene, bitmap=bits[:, torch.arange(bits.shape[1]) // scene.group]))


def _blocks(change: Callable[[Tensor], Tensor | None]) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        live = blocks_tensor(scene.case)
        if live is not None and live.numel():
            changed = change(live)
            if changed is not None:
                yield Alternative(inputs=with_parts(scene, blocks=spread_blocks(scene, changed)))

    return build


def _leading_blocks(scene: Scene) -> Iterator[Alternative]:
    """As many blocks as are live, from the first one, along the keys or along the rows."""
    live = blocks_tensor(scene.case)
    if live is None:
        return
    keys = torch.arange(live.shape[-1]) < live.sum(-1, keepdim=True)
    rows = torch.arange(live.shape[-2]).unsqueeze(-1) < live.sum(-2, keepdim=True)
    yield Alternative(inputs=with_parts(scene, blocks=spread_blocks(scene, keys)), detail="along the keys")
    yield Alternative(inputs=with_parts(scene, blocks=spread_blocks(scene, rows)), detail="along the rows")


def _without_blocks(scene: Scene) -> Iterator[Alternative]:
    if scene.case.mask.blocks is not None:
        yield Alternative(inputs=with_parts(scene, blocks=None))


def _first_tile(scene: Scene) -> Iterator[Alternative]:
    blocks = scene.case.mask.blocks
    if blocks is None:
        return
    live, key = parts(scene)["blocks"], scene.at.key[:, None, None, :]
    begin = key // blocks.keys * blocks.keys
    held = (torch.minimum(begin + blocks.keys, scene.at.key_limit[:, None, None, :]) - begin).clamp(min=1)
    for size in TILES:
        if size < blocks.keys:
            inputs = with_parts(scene, blocks=live & (key % blocks.keys < size))
            yield Alternative(inputs=inputs, detail=f"a tile of {size} keys")
            times = (-(-held // size)).double().log()
            again = replace(inputs, biases=(*inputs.biases, times))
            yield Alternative(inputs=again, detail=f"a tile of {size} keys, once for each tile of the block")


def _partial_block(scene: Scene) -> Iterator[Alternative]:
    """A block that the limit of the walk cuts is left out."""
    blocks = scene.case.mask.blocks
    if blocks is None:
        return
    found = parts(scene)
    limit = scene.at.keys[:, None, :, None]
    whole = (scene.at.key[:, None, None, :] // blocks.keys + 1) * blocks.keys <= limit
    yield Alternative(inputs=with_parts(scene, blocks=found["blocks"] & whole))
    at = scene.at
    rows = ((at.row // blocks.rows + 1) * blocks.rows <= at.rows)[:, None, :, None]
    along = with_parts(scene, blocks=found["blocks"] & rows)
    yield Alternative(inputs=along, detail="in the walk over the queries", outputs=("dk", "dv"))
    # of a causal walk the limit is that of the last row of a tile of rows
    if "causal" in found or "right" in found:
        upper = found.get("causal", torch.ones(())) * found.get("right", torch.ones(())) > 0
        for size in (16, 32, 64, 128):
            tile = torch.arange(scene.case.seq_q) // size
            last = torch.stack([upper[..., tile == tile[n], :].any(-2) for n in range(scene.case.seq_q)], -2)
            last = last & found["keys"]
            end = (scene.at.key[:, None, None, :] + 1).where(last, 0).amax(-1, keepdim=True)
            cut = (scene.at.key[:, None, None, :] // blocks.keys + 1) * blocks.keys <= end
            part = found["blocks"] & cut
            yield Alternative(inputs=with_parts(scene, blocks=part), detail=f"a tile of {size} rows")


PATTERNS = (
    Semantics(name="bitmap-ignored", sentence="the bitmap is ignored", build=_bitmap(torch.ones_like)),
    Semantics(
        name="bitmap-bits-reversed",
        sentence="the bits of each 32-bit word of the bitmap are read in reverse order",
        build=_bitmap(_reversed_words),
    ),
    Semantics(name="bitmap-inverted", sentence="the bitmap is inverted", build=_bitmap(torch.logical_not)),
    Semantics(
        name="bitmap-transposed", sentence="rows and keys of the bitmap are exchanged", build=_bitmap(_transposed)
    ),
    Semantics(
        name="bitmap-next-key",
        sentence="the bitmap is read one key further on",
        build=_bitmap(lambda bits: torch.nn.functional.pad(bits[..., 1:], (0, 1))),
    ),
    Semantics(
        name="bitmap-of-kv-head",
        sentence="the bitmap is that of the query head with the number of the kv head",
        build=_of_kv_head,
    ),
    Semantics(
        name="bitmap-batch-head-exchanged",
        sentence="the strides of the bitmap over batches and heads are exchanged",
        build=_exchanged,
    ),
    Semantics(name="blocks-ignored", sentence="the block-sparse pattern is ignored", build=_without_blocks),
    Semantics(
        name="blocks-transposed",
        sentence="rows and keys of the block-sparse pattern are exchanged",
        build=_blocks(_transposed),
    ),
    Semantics(
        name="blocks-next-key",
        sentence="the block-sparse pattern is read one block of keys further on",
        build=_blocks(lambda live: torch.nn.functional.pad(live[..., 1:], (0, 1))),
    ),
    Semantics(
        name="blocks-leading",
        sentence="as many blocks as are live are visited, but the first ones",
        build=_leading_blocks,
    ),
    Semantics(
        name="blocks-first-tile-only", sentence="of a live block only the first tile is visited", build=_first_tile
    ),
    Semantics(
        name="blocks-partial-missing",
        sentence="a live block that the limit of the keys cuts is left out",
        build=_partial_block,
    ),
)
