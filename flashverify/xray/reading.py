"""The launches that read the masks, and what each reading means in pairs of rows and keys."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from flashverify.xray.codes import bins
from flashverify.xray.view import Count, View, compare

if TYPE_CHECKING:
    import torch

    from flashverify.subjects.interface import Forward
    from flashverify.xray.codes import Scaling
    from flashverify.xray.probe import Probe

__all__ = ["Reader", "cells"]


def cells(cell: torch.Tensor, channels: int) -> torch.Tensor:
    """One-hot `[..., channels]`, float64, of cell numbers; those outside 0 ... channels - 1 are 0 in every channel."""
    import torch

    return (cell.unsqueeze(-1) == torch.arange(channels, device=cell.device)).double()


class Reader:
    """Reads counts through a probe.

    Attributes:
        count: keys per row by the LSE, once `weights` was called; None without an LSE.
        group: query heads of a kv head.
        row: numbers of the rows, `[Sq]`.
        key: numbers of the keys, `[Sk]`.
        outside_rows: bool `[B, 1, Sq, 1]`: rows whose outputs the contract leaves open.
        outside_keys: bool `[B, 1, 1, Sk]`: keys whose gradients it leaves open.
        amplitude: of Q and K where dK and dQ are read, a power of two: scale * amplitude is between 1 and 2.
    """

    def __init__(self, probe: Probe, scaling: Scaling) -> None:
        import torch

        self.probe, self.scaling, self.case = probe, scaling, probe.case
        self.count: Count | None = None
        self._lying: torch.Tensor | None = None
        case, device = probe.case, probe.device
        self.group = case.heads_q // case.heads_kv
        self._head = (torch.arange(case.heads_q, device=device) % self.group).view(-1, 1)
        self.row = torch.arange(case.seq_q, device=device)
        self.key = torch.arange(case.seq_k, device=device)
        self.outside_rows, self.outside_keys = probe.outside_rows, probe.outside_keys
        self.amplitude = 2.0 ** -math.floor(math.log2(abs(probe.scale))) if probe.scale else 1.0

    def incoming(self, forward: Forward) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of the rows `[B, Hq, Sq]`, float64: the sum of the weights, the size of dO, and rho: how much one weight times dO is, over `scaling.row`."""
        import torch

        mass, declared = self.probe.mass(forward), self.probe.declared.per_row
        if self._lying is not None:
            mass = torch.where(self._lying, self.probe.declared_mass, mass)
        usable = torch.isfinite(mass) & (mass >= 0.5) & (mass <= 2 * self.case.seq_k + 1)
        number = torch.where(usable, mass, declared.clamp(min=1))
        size = (number * self.scaling.row).to(self.probe.dtype).double()
        return torch.where(mass == 0, 1.0, mass), size, size / (number * self.scaling.row)

    def to_heads(self, by_kv_head: torch.Tensor) -> torch.Tensor:
        """`[B, Hkv, ...]` as `[B, Hq, ...]`."""
        return by_kv_head.repeat_interleave(self.group, 1)

    def row_cells(self, width: int) -> torch.Tensor:
        """Cell of every row of every head of a group, `[Hq, Sq]`: a kv head's gradients are summed over the heads of its group."""
        return self._head * bins(self.case.seq_q, width) + self.row // width

    def weights(self, rows: int, keys: int, *, by: tuple[torch.Tensor, torch.Tensor] | None = None) -> list[View]:
        """The masks of O and of dV, one launch after the other.

        Args:
            rows: rows per cell of dV's mask.
            keys: keys per cell of O's mask.
            by: signs of the rows `[B, Hq, Sq]` and of the keys `[B, Hkv, Sk]`; None is +1.
        """
        import torch

        case, probe, device = self.case, self.probe, self.probe.device
        key_bins, row_bins = bins(case.seq_k, keys), self.group * bins(case.seq_q, rows)
        channels = case.dim_v
        read_o = torch.zeros(*case.shape_q[:3], key_bins, dtype=torch.float64, device=device)
        read_dv = torch.zeros(*case.shape_k[:3], row_bins, dtype=torch.float64, device=device)
        passes = []
        for start in range(0, max(key_bins, row_bins if probe.has_backward else 0), channels):
            v = cells(self.key // keys - start, channels) * self.scaling.value
            problem, forward = probe.forward(v=v if by is None else v * by[1].unsqueeze(-1))
            if self.count is None:
                self.count = self._count(forward)
            part = probe.output(forward) / self.scaling.value
            read_o[..., start : start + channels] = part[..., : max(0, key_bins - start)]
            if start < row_bins and probe.has_backward:
                passes.append((start, problem, forward))
        views = [self._of_o(read_o, keys, by, self.incoming(forward)[0].unsqueeze(-1))]
        rho = torch.ones(case.shape_q[:3], dtype=torch.float64, device=device)
        for start, problem, forward in passes:
            _, size, rho = self.incoming(forward)
            do = cells(self.row_cells(rows) - start, channels) * size.unsqueeze(-1)
            do = do if by is None else do * by[0].unsqueeze(-1)
            found = probe.backward(problem, forward, do)["dv"] / self.scaling.row
            read_dv[..., start : start + channels] = found[..., : row_bins - start]
        return [*views, self._of_dv(read_dv, rows, rho, by)] if passes else views

    def _of_o(
        self, read: torch.Tensor, keys: int, by: tuple[torch.Tensor, torch.Tensor] | None, mass: torch.Tensor
    ) -> View:
        """The mask of O; where it is as declared if the declared number of keys is taken for that of a wrong LSE, the LSE alone is to blame."""
        import torch

        sign = None if by is None else self.to_heads(by[1])
        expected = self.probe.declared.sums("keys", keys, by_key=sign)
        plain = expected if keys > 1 or by is None else self.probe.declared.sums("keys", keys)
        unit = None if keys > 1 or sign is None else sign.unsqueeze(2)
        signed = by is not None and keys > 1

        def view(number: torch.Tensor) -> View:
            shown = (expected, plain, unit, self.outside_rows)
            return compare("o", (1, keys), read * number, *shown, signed=signed)

        found = view(mass)
        if self._lying is None and self.count is not None and bool((self.count.wrong & found.wrong.any(-1)).any()):
            other = view(self.probe.declared_mass.clamp(min=1).unsqueeze(-1))
            self._lying = self.count.wrong & found.wrong.any(-1) & ~other.wrong.any(-1)
            found = view(torch.where(self._lying.unsqueeze(-1), self.probe.declared_mass.unsqueeze(-1), mass))
        return found

    def zoom(self, first: int, count: int) -> View:
        """The mask of O for the keys `first ... first + count - 1`, pair by pair."""
        import torch

        case = self.case
        parts = []
        for start in range(first, first + count, case.dim_v):
            v = cells(self.key - start, case.dim_v) * self.scaling.value
            _, forward = self.probe.forward(v=v * ((self.key >= first) & (self.key < first + count)).unsqueeze(-1))
            parts.append(self.probe.output(forward) * self.incoming(forward)[0].unsqueeze(-1) / self.scaling.value)
        read = torch.cat(parts, -1)[..., :count]
        declared = self.probe.declared.block(slice(0, case.seq_q), slice(first, first + count)).double()
        view = compare("o", (1, 1), read, declared, declared, None, self.outside_rows)
        return dataclasses.replace(view, first_key=first, zoomed=True)

    def _of_dv(
        self, read: torch.Tensor, rows: int, rho: torch.Tensor, by: tuple[torch.Tensor, torch.Tensor] | None
    ) -> View:
        declared = self.probe.declared
        factor = rho if by is None else rho * by[0]
        expected = declared.sums("rows", rows, by_row=factor)
        plain = declared.sums("rows", rows, by_row=by[0] if by is not None and rows > 1 else None)
        unit = factor.unsqueeze(-1) if rows == 1 else None
        signed = by is not None and rows > 1
        return compare(
            "dv", (rows, 1), self.by_head(read, rows), expected, plain, unit, self.outside_keys, signed=signed
        )

    def row_bins(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """Sums of `[B, Hq, Sq]` over bins of rows."""
        import torch

        missing = bins(self.case.seq_q, width) * width - self.case.seq_q
        padded = torch.nn.functional.pad(values, (0, missing))
        binned: torch.Tensor = padded.reshape(*padded.shape[:2], -1, width).sum(3)
        return binned

    def by_head(self, read: torch.Tensor, width: int) -> torch.Tensor:
        """From `[B, Hkv, Sk, group * bins]` to `[B, Hq, bins, Sk]`."""
        split = read.reshape(*read.shape[:3], self.group, bins(self.case.seq_q, width))
        return split.permute(0, 1, 3, 4, 2).flatten(1, 2)

    def _count(self, forward: Forward) -> Count | None:
        if forward.lse is None or self.probe.subject.contract.lse_base is None:
            return None
        mass, declared = self.probe.mass(forward), self.probe.declared.per_row
        expected = self.probe.declared_mass.clamp(min=1)
        relative = self.probe.subject.form(self.case).eps + 2.0**-22 * expected.log().clamp(min=1)
        resolution = expected * relative
        found = self.probe.keys(mass)
        outside = self.outside_rows.squeeze(-1)
        wrong = ~((found - declared).abs() <= resolution.clamp(min=0.5)) & ~outside
        unresolved = int(((resolution >= 0.5) & ~outside).sum())
        return Count(declared=declared, found=found, resolution=resolution, wrong=wrong, unresolved=unresolved)
