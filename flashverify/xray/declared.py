"""The declared mask in pieces: sums over bins, keys per row, and why a pair is masked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.predicate import hidden_by, visible
from flashverify.xray.codes import bins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = ["Declared", "reasons"]

_CHUNK = 2**25
"""Pairs that are looked at together."""
_SAMPLE = 20_000
"""Pairs that are asked for their reason."""


class Declared:
    """The mask that a case declares.

    Args:
        case: the problem.
        device: where its pieces are computed.
    """

    def __init__(self, case: Case, device: torch.device) -> None:
        self._case, self._device = case, device
        self._see = visible(case, device)
        self.per_row = self.sums("keys", max(1, case.seq_k)).squeeze(-1) if case.seq_k else self._none()

    def _none(self) -> torch.Tensor:
        return torch.zeros(self._case.shape_q[:3], dtype=torch.float64, device=self._device)

    def block(self, rows: slice, keys: slice) -> torch.Tensor:
        """Bool `[B, Hq, rows, keys]`: true where the row sees the key."""
        case = self._case
        shape = (case.batch, case.heads_q, rows.stop - rows.start, keys.stop - keys.start)
        if self._see is None:
            return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self._device).expand(shape)
        return self._see(rows, keys).expand(shape)

    def full(self) -> torch.Tensor:
        """Bool `[B, Hq, Sq, Sk]`."""
        return self.block(slice(0, self._case.seq_q), slice(0, self._case.seq_k))

    def sums(
        self, axis: str, width: int, *, by_row: torch.Tensor | None = None, by_key: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Sums of mask * by_row * by_key over bins of `width` along `axis`, float64.

        Args:
            axis: `keys` or `rows`, whose positions are summed.
            width: positions per bin.
            by_row: `[B, Hq, Sq]`, or None for 1.
            by_key: `[B, Hq, Sk]`, or None for 1.

        Returns:
            `[B, Hq, Sq, bins]` over keys, `[B, Hq, bins, Sk]` over rows.
        """
        case = self._case
        parts = []
        for rows in self._chunks(1 if axis == "keys" else width):
            block = self.block(rows, slice(0, case.seq_k)).double()
            if by_row is not None:
                block = block * by_row[:, :, rows, None]
            if by_key is not None:
                block = block * by_key[:, :, None, :]
            parts.append(_binned(block, width, 3 if axis == "keys" else 2))
        if parts:
            return torch.cat(parts, 2)
        shape = (*case.shape_q[:2], 0, bins(case.seq_k, width) if axis == "keys" else case.seq_k)
        return torch.zeros(shape, dtype=torch.float64, device=self._device)

    def _chunks(self, multiple: int) -> Iterator[slice]:
        case = self._case
        pairs = max(1, case.batch * case.heads_q * case.seq_k)
        step = max(multiple, _CHUNK // pairs // multiple * multiple)
        for start in range(0, case.seq_q, step):
            yield slice(start, min(start + step, case.seq_q))


def _binned(values: torch.Tensor, width: int, axis: int) -> torch.Tensor:
    if width == 1:
        return values
    size = values.shape[axis]
    missing = bins(size, width) * width - size
    if missing:
        padding = list(values.shape)
        padding[axis] = missing
        values = torch.cat([values, values.new_zeros(padding)], axis)
    shape = values.shape
    found: torch.Tensor = values.reshape(*shape[:axis], -1, width, *shape[axis + 1 :]).sum(axis + 1)
    return found


def reasons(case: Case, places: torch.Tensor) -> tuple[str, ...]:
    """Why the pairs are masked, most frequent first; one reason a pair.

    Args:
        case: the problem.
        places: int64 `[n, 4]`: batch, query head, row, key of masked pairs; of very many a sample is looked at.
    """
    places = places[:: max(1, len(places) // _SAMPLE)]
    left = torch.ones(len(places), dtype=torch.bool, device=places.device)
    found: dict[str, int] = {}
    for name, hidden in hidden_by(case, places).items():
        hit = hidden & left
        left = left & ~hit
        found[name] = int(hit.sum())
    found["masked keys"] = int(left.sum())
    return tuple(name for name, count in sorted(found.items(), key=lambda item: -item[1]) if count)
