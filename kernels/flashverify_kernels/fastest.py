"""The tiles that were the fastest of those timed on an H200, for problems that descriptors fetch."""

from typing import Any

from flashverify_kernels.device.mask import LOWER, SPARSE, UPPER

_DENSE, _CAUSAL, _WINDOW, _BLOCKS = 0, UPPER.value, UPPER.value | LOWER.value, SPARSE.value
_LARGE = 128

Tile = tuple[int, int, int, int]
"""Queries and keys per tile, warps and stages."""

_SMALL_LOOPS: Tile = (64, 64, 4, 2)
_TILES: dict[tuple[str, int], dict[int, Tile]] = {
    ("dq", 128): {_WINDOW: _SMALL_LOOPS, _BLOCKS: _SMALL_LOOPS},
    ("dkdv", 128): {_WINDOW: _SMALL_LOOPS, _BLOCKS: _SMALL_LOOPS},
    ("forward", 128): {_BLOCKS: _SMALL_LOOPS},
    ("forward", 256): dict.fromkeys((_DENSE, _CAUSAL), (128, 64, 8, 2)),
    ("dq", 256): dict.fromkeys((_DENSE, _CAUSAL), (64, 32, 4, 3)),
    ("dkdv", 256): dict.fromkeys((_DENSE, _CAUSAL), (64, 64, 8, 2)),
}
_ALSO_OF_HOPPER = (("forward", 256),)
"""Whose tiles of keys are those of the kernels for Hopper GPUs too."""
_LARGE_BLOCKS: Tile = (128, 128, 8, 2)
_OF_HOPPER: dict[tuple[str, int], Tile] = {
    ("forward", 64): (64, 128, 4, 2),
    ("forward", 128): _LARGE_BLOCKS,
    ("dq", 128): (128, 64, 8, 3),
    ("dkdv", 64): (64, 128, 4, 2),
    ("dkdv", 128): (64, 128, 8, 1),
}
"""Of patterns under the kernels for Hopper GPUs, whose programs take as many queries or keys: they divide a block."""


def fastest(kind: str, dim: int, flags: int, blocks: tuple[int, int] | None, hopper: bool = False) -> dict[str, Any]:
    """The fields of a `LaunchConfig` for 16-bit problems without further terms, all rows of which count; none where no other tiles were found.

    Args:
        kind: which kernel.
        dim: head dimension of q, k and v.
        flags: parts of the mask.
        blocks: queries and keys per block of a block-sparse mask.
        hopper: whether the kernels for Hopper GPUs may be asked for.
    """
    of_hopper = _OF_HOPPER.get((kind, dim))
    if hopper and blocks and of_hopper and not flags & ~(_WINDOW | _BLOCKS):
        m, n, warps, stages = of_hopper
        if blocks[0] % m == blocks[1] % n == 0:
            return {"block_m": m, "block_n": n, "num_warps": warps, "num_stages": stages, "hopper": True}
    tile = _TILES.get((kind, dim), {}).get(flags)
    if tile is None:
        return {}
    if kind == "forward" and flags == _BLOCKS and blocks and not any(size % _LARGE for size in blocks):
        tile = _LARGE_BLOCKS
    m, n, warps, stages = tile
    found = {"block_m": m, "block_n": n, "num_warps": warps, "num_stages": stages, "descriptors": True}
    return found | ({"hopper": True} if hopper and (kind, dim) in _ALSO_OF_HOPPER else {})
