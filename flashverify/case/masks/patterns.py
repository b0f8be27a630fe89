"""Drawn patterns of a mask as bool arrays: bitmaps and block-sparse patterns."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from flashverify.case.values import philox

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashverify.case.case import Case
    from flashverify.case.masks.bitmap import Bitmap
    from flashverify.case.masks.blocks import Blocks

    Bools = NDArray[np.bool_]

__all__ = ["bitmap_array", "bitmap_tensor", "blocks_array", "blocks_tensor"]


def bitmap_tensor(case: Case, device: torch.device | str = "cpu") -> torch.Tensor | None:
    """The bitmap of the case, bool `[B or 1, Hq or 1, Sq, Sk]`, true where the row may see the key; None without one."""
    return _tensor(bitmap_array(case), device)


def blocks_tensor(case: Case, device: torch.device | str = "cpu") -> torch.Tensor | None:
    """The block-sparse pattern, bool `[B or 1, Hq or 1, ceil(Sq / rows), ceil(Sk / keys)]`, true = live; None without one."""
    return _tensor(blocks_array(case), device)


def bitmap_array(case: Case) -> Bools | None:
    """As `bitmap_tensor`; read-only, and kept for the last few cases."""
    bitmap = case.mask.bitmap
    return None if bitmap is None else _bitmap(bitmap, (*_heads(case, bitmap), case.seq_q, case.seq_k))


def blocks_array(case: Case) -> Bools | None:
    """As `blocks_tensor`; read-only, and kept for the last few cases."""
    blocks = case.mask.blocks
    if blocks is None:
        return None
    return _blocks(blocks, (*_heads(case, blocks), -(-case.seq_q // blocks.rows), -(-case.seq_k // blocks.keys)))


def _heads(case: Case, part: Bitmap | Blocks) -> tuple[int, int]:
    return (case.batch, case.heads_q) if part.each else (1, 1)


@functools.lru_cache(maxsize=4)
def _bitmap(bitmap: Bitmap, shape: tuple[int, ...]) -> Bools:
    return _frozen(_share(bitmap.seed, "bitmap", bitmap.live, shape))


@functools.lru_cache(maxsize=4)
def _blocks(blocks: Blocks, shape: tuple[int, ...]) -> Bools:
    live = _share(blocks.seed, "blocks", blocks.live, shape)
    if blocks.butterfly:
        apart = np.arange(shape[2], dtype=np.int64)[:, None] ^ np.arange(shape[3], dtype=np.int64)
        live |= (apart & (apart - 1)) == 0
    if blocks.sliding:
        diagonal = np.arange(shape[2], dtype=np.int64)[:, None] * blocks.rows // blocks.keys
        live |= np.abs(np.arange(shape[3], dtype=np.int64) - diagonal) < blocks.sliding
    return _frozen(live)


def _share(seed: int, name: str, live: int, shape: tuple[int, ...]) -> Bools:
    """True for `live` in 256 elements: one byte of the stream each."""
    count = math.prod(shape)
    raw = philox.words(seed, name, -(-count // 8)).astype("<u8", copy=False).view(np.uint8)[:count]
    drawn: Bools = raw < live
    return drawn.reshape(shape)


def _frozen(array: Bools) -> Bools:
    array.flags.writeable = False
    return array


def _tensor(array: Bools | None, device: torch.device | str) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array.copy()).to(device)
