"""How many programs the kernels for Hopper GPUs have, and how these share the tiles of queries."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from flashverify_kernels.device.mask import LOWER, SPARSE, UPPER
from flashverify_kernels.programs import programs_of

if TYPE_CHECKING:
    from flashverify_kernels.validation import CheckedCall

_ROWS = 128  # queries of a tile of the forward and of dQ
_EMPTY = 1.125  # rounds of pairs times the room, beside the pairs


def shared_programs(call: CheckedCall, device: torch.device) -> tuple[bool, int]:
    """`shares` of a call, whose tiles have 128 queries.

    There is a program a tile of packed sequences, as their walks differ, and beyond 128 channels, where there is room for one tile alone.
    """
    if call.packed:
        return False, programs_of(call, call.heads, call.sq, call.rows, _ROWS)
    heads, tiles = call.batch * call.heads, whole_tiles(call, call.sq, 0, _ROWS)
    if call.d > _ROWS:
        return False, heads * tiles
    return shares(heads, tiles, call.mask.flags, multiprocessors(device))


def whole_tiles(call: CheckedCall, length: int, axis: int, tile: int) -> int:
    """Tiles of queries (`axis` 0) or keys (1); under a pattern those of whole blocks."""
    size = tile if call.mask.block_size is None else call.mask.block_size[axis]
    return -(-length // size) * (size // tile)


def shares(heads: int, tiles: int, flags: int, room: int) -> tuple[bool, int]:
    """Whether tiles go in pairs, and how many programs share all tiles.

    As many programs as there is room for take equal shares; what each fetches for its next tile arrives beside its work. Where walks differ
    and the last round of pairs would leave much of the room empty, there is a program a tile, and the GPU spreads them.

    Args:
        heads: query heads of all batches.
        tiles: tiles of queries of a head.
        flags: parts of the mask.
        room: programs that run at a time.
    """
    if flags & LOWER.value or not flags & (UPPER.value | SPARSE.value):
        return False, min(heads * tiles, room)  # all walks are alike
    units = heads * (tiles - tiles // 2)
    if room * -(-units // room) > _EMPTY * units:
        return False, heads * tiles
    return True, min(units, room)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Programs that run at a time where each takes a multiprocessor."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
