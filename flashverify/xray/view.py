"""One mask as it is in effect: how often every key, or bin of keys, entered every row, or bin of rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.xray.codes import WHOLE

if TYPE_CHECKING:
    import torch

__all__ = ["Count", "View", "compare", "filled"]

_MOST = 2.0**31
"""More pairs than any cell has: what is as large is no count of them."""
_LEAST = 0.45
"""Least weight of a pair in a reading that still tells whether it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What was read of one output.

    Attributes:
        output: `o`, `dv`, `dq` or `dk`.
        rows: rows per cell.
        keys: keys per cell.
        declared: int32 `[B, Hq, row cells, key cells]`: pairs that the mask shows (with signs: their signed sum).
        delta: int32, the same shape: pairs counted too often, or too rarely where negative.
        unread: bool, the same shape: cells that this output cannot tell.
        broken: bool, the same shape: readings that are no integer, or not finite.
        distance: largest distance of a reading from an integer, of those that are one.
        signed: with random signs: a cell that differs tells neither how many pairs are wrong nor of which kind.
        first_key: where the view begins.
        zoomed: a part of another view, pair by pair.
    """

    output: str
    rows: int
    keys: int
    declared: torch.Tensor
    delta: torch.Tensor
    unread: torch.Tensor
    broken: torch.Tensor
    distance: float
    signed: bool = False
    first_key: int = 0
    zoomed: bool = False

    @property
    def exact(self) -> bool:
        """Whether every cell is one pair."""
        return self.rows == 1 and self.keys == 1

    @property
    def cells(self) -> int:
        """Cells that were read."""
        return int((~self.unread).sum())

    @property
    def effective(self) -> torch.Tensor:
        """int32: pairs that entered."""
        return self.declared + self.delta

    @property
    def wrong(self) -> torch.Tensor:
        """bool: cells that differ from the mask or are no integer."""
        return (self.delta != 0) | self.broken


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The number of keys of each row, from its LSE.

    Attributes:
        declared: float64 `[B, Hq, Sq]`.
        found: float64, the same shape.
        resolution: largest error of `found` that rounding explains.
        wrong: bool, the same shape.
        unresolved: rows whose LSE does not tell one key more from one less.
    """

    declared: torch.Tensor
    found: torch.Tensor
    resolution: torch.Tensor
    wrong: torch.Tensor
    unresolved: int = 0


def compare(
    output: str,
    widths: tuple[int, int],
    reading: torch.Tensor,
    expected: torch.Tensor,
    declared: torch.Tensor,
    unit: torch.Tensor | None,
    unread: torch.Tensor,
    *,
    signed: bool = False,
) -> View:
    """A view from a reading.

    Args:
        output: see `View`.
        widths: rows and keys per cell.
        reading: float64, what was read, in pairs.
        expected: float64, what the declared mask gives.
        declared: see `View`.
        unit: what one pair adds to the reading, of cells of one pair; None is 1.
        unread: bool, broadcastable: cells that cannot be told.
        signed: see `View`.
    """
    import torch

    off = reading - expected
    if unit is not None:
        unread = unread | (unit.abs() < _LEAST)
        off = off / torch.where(unit.abs() < _LEAST, 1.0, unit)
    unread = unread.expand(off.shape)
    whole = off.round()
    distance = (off - whole).abs()
    broken = ~((distance <= WHOLE) & (whole.abs() < _MOST)) & ~unread
    kept = ~unread & ~broken
    delta = torch.where(kept, whole, 0.0).to(torch.int32)
    far = torch.where(kept, distance, 0.0)
    return View(
        output=output,
        rows=widths[0],
        keys=widths[1],
        declared=declared.round().to(torch.int32),
        delta=delta,
        unread=unread,
        broken=broken,
        distance=float(far.max()) if far.numel() else 0.0,
        signed=signed,
    )


def filled(view: View, other: View) -> View:
    """`view` with the cells that it could not tell from `other`."""
    import torch

    return dataclasses.replace(
        view,
        delta=torch.where(view.unread, other.delta, view.delta),
        broken=torch.where(view.unread, other.broken, view.broken),
        unread=view.unread & other.unread,
        distance=max(view.distance, other.distance),
    )
