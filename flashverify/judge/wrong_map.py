"""Where an output is wrong, as a small picture that is stored with the verdict: rows or keys run to the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.outputs import OUTPUTS
from flashverify.outputs import output as output_spec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    Grid = NDArray[np.float64]

__all__ = ["ALL", "MOST_ACROSS", "MOST_DOWN", "NONE", "WrongMap", "wrong_map"]

MOST_ACROSS, MOST_DOWN = 64, 16
"""Most cells of a map along each side; a cell is a power of two of elements long."""
NONE, ALL = 0, 9
"""Levels of a cell without a failing element, and of one in which every element fails."""

_WORDS = {"row": "row", "key": "key", "head_q": "head", "head_kv": "head", "bucket": "bucket"}


class WrongMap(msgspec.Struct, frozen=True, omit_defaults=True):
    """The failing elements of an output on a coarse grid.

    Attributes:
        output: whose elements.
        across: what runs to the right: `row`, `key`, `head` or `bucket`; `width` of them, `wide` in each cell.
        down: what runs downwards: `head` (those of all sequences, one sequence after the other), `channel`, `row`, or nothing;
            `height` of them, `high` in each cell.
        cells: a text for each line, a digit for each cell: the share of its elements that fail, 0 none, 9 all, between them ninths.
    """

    output: str
    across: str
    width: int
    wide: int
    down: str
    height: int
    high: int
    cells: tuple[str, ...]


def wrong_map(output: str, wrong: Tensor) -> WrongMap | None:
    """The map of the failing elements.

    An output with channels is drawn over its heads, or over its channels where more of these are right throughout.

    Args:
        output: its name, of `flashverify.outputs.OUTPUTS`.
        wrong: bool, shaped as the output.

    Returns:
        None of an output that is not known, that has no elements or another number of axes.
    """
    spec = output_spec(output) if output in OUTPUTS else None
    if spec is None or wrong.numel() == 0 or wrong.dim() != len(spec.axes):
        return None
    if spec.channels:
        heads, channels = _share(wrong, (3,)).reshape(-1, wrong.shape[2]), _share(wrong, (0, 1)).T
        down, grid = ("channel", channels) if _untouched(channels) > _untouched(heads) else ("head", heads)
        return _pooled(output, _WORDS[spec.axes[2]], down, grid)
    if wrong.dim() == 4:
        return _pooled(output, "key", "row", _share(wrong, (0, 1)))
    grid = _share(wrong, ()).reshape(-1, wrong.shape[-1])
    return _pooled(output, _WORDS[spec.axes[-1]], "head" if wrong.dim() > 1 else "", grid)


def _share(wrong: Tensor, over: tuple[int, ...]) -> Grid:
    """The share of failing elements over some axes."""
    found = wrong.double()
    share: Grid = (found.mean(over) if over else found).cpu().numpy()
    return share


def _untouched(grid: Grid) -> float:
    """The share of the lines of a grid `[down, across]` in which nothing fails."""
    return float((grid.max(1) == 0).mean())


def _pooled(output: str, across: str, down: str, grid: Grid) -> WrongMap:
    """The map of a grid `[down, across]` of shares."""
    import numpy as np

    height, width = grid.shape
    high, wide = _cell(height, MOST_DOWN), _cell(width, MOST_ACROSS)
    y, x = np.arange(0, height, high), np.arange(0, width, wide)
    least = np.minimum.reduceat(np.minimum.reduceat(grid, y, 0), x, 1)
    total = np.add.reduceat(np.add.reduceat(grid, y, 0), x, 1)
    sizes = np.outer(np.minimum(high, height - y), np.minimum(wide, width - x))
    levels = np.where(total == 0, NONE, np.clip(total / sizes * ALL, 1, ALL - 1)).astype(int)
    levels[least == 1] = ALL
    return WrongMap(output, across, width, wide, down, height, high, tuple("".join(map(str, line)) for line in levels))


def _cell(size: int, most: int) -> int:
    """The smallest power of two of which at most `most` cover `size`."""
    length = 1
    while -(-size // length) > most:
        length *= 2
    return length
