"""The size of a tile, as launch values name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.case.supports import Launch

__all__ = ["LARGEST_TILE", "LEAST_TILE", "USUAL_TILE", "tile_of"]

LEAST_TILE, LARGEST_TILE = 8, 256
"""Launch values outside are no sizes of tiles."""
USUAL_TILE = 64
"""Rows and keys of a tile where no launch value says how large it is."""
_ROWS, _KEYS = ("m", "q"), ("n", "k")


def tile_of(launch: Launch, rows: int = USUAL_TILE, keys: int = USUAL_TILE) -> tuple[int, int]:
    """(rows, keys) of a tile: of the launch values whose names end in m or q, and in n or k.

    Args:
        launch: launch values by name.
        rows: of a tile where no value says it.
        keys: likewise.
    """
    sizes = {name.lower(): value for name, value in launch if LEAST_TILE <= value <= LARGEST_TILE}
    found_rows = [value for name, value in sizes.items() if name.endswith(_ROWS)]
    found_keys = [value for name, value in sizes.items() if name.endswith(_KEYS)]
    return max(found_rows, default=rows), max(found_keys, default=keys)
