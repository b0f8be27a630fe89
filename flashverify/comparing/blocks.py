"""Common cases of one subject and dtype whose results have ratios of the same outputs: arithmetic goes over all of a block at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashverify.comparing.pair import Pair, Seen
from flashverify.report.columns import VOID

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashverify.comparing.loaded import Floats, Integers, Loaded
    from flashverify.report.columns import Place

__all__ = ["Block", "blocks_of"]


@dataclass(frozen=True)
class Block:
    """Some common cases.

    Attributes:
        before, after: the runs.
        rows_before, rows_after: a row of each for every case.
        places: that results of both runs have ratios of, in alphabetical order.
    """

    before: Loaded
    after: Loaded
    rows_before: Integers
    rows_after: Integers
    places: tuple[Place, ...]

    @property
    def subject(self) -> str:
        """Its name in the later run."""
        return self.pair(0).subject

    @property
    def dtype(self) -> str:
        """As the axes of a report word it."""
        return self.pair(0).dtype

    def pair(self, number: int) -> Pair:
        """A case of it."""
        return Pair(Seen(self.before, int(self.rows_before[number])), Seen(self.after, int(self.rows_after[number])))

    def ratios(self, place: Place) -> tuple[Floats, Floats]:
        """The worst ratios of a place before and after; `VOID` where nothing was judged."""
        return (
            _column(self.before, self.before.values, self.rows_before, place),
            _column(self.after, self.after.values, self.rows_after, place),
        )

    def biases(self, place: Place) -> tuple[Floats, Floats]:
        """The mean signed ratios, likewise; NaN where there is none."""
        return (
            _column(self.before, self.before.signed, self.rows_before, place),
            _column(self.after, self.after.signed, self.rows_after, place),
        )


def _column(run: Loaded, numbers: Floats, rows: Integers, place: Place) -> Floats:
    """The numbers of a place; of several in one result the last that is one."""
    begins, void = run.starts[rows], VOID if numbers is run.values else None
    at = [n for n, each in enumerate(run.layouts[run.layout[rows[0]]]) if each == place]
    found = numbers[begins + at[0]]
    for n in at[1:]:
        later = numbers[begins + n]
        found = np.where(np.isnan(later) if void is None else later == void, found, later)
    return found


def blocks_of(before: Loaded, after: Loaded, rows_before: Integers, rows_after: Integers) -> list[Block]:
    """All common cases, in blocks."""
    if not len(rows_after):
        return []
    kind = np.zeros(len(rows_after), np.int64)
    for numbers in (
        after.subject[rows_after],
        after.dtype[rows_after],
        after.layout[rows_after],
        before.layout[rows_before],
    ):
        kind = kind * (int(numbers.max()) + 1) + numbers
    order = np.argsort(kind, kind="stable")
    cuts = np.flatnonzero(np.diff(kind[order])) + 1
    return [_block(before, after, rows_before[mine], rows_after[mine]) for mine in np.split(order, cuts)]


def _block(before: Loaded, after: Loaded, rows_before: NDArray[np.int64], rows_after: NDArray[np.int64]) -> Block:
    old, new = before.layouts[before.layout[rows_before[0]]], after.layouts[after.layout[rows_after[0]]]
    return Block(before, after, rows_before, rows_after, tuple(sorted({*old} & {*new})))
