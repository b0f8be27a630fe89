"""What the backward starts from, and how far that may be off, in one mode or in several side by side.

Tensors of several modes have one axis more, the first, along which these lie; what all of them share has not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from flashverify.numerics.chunk import finite, finite_rows
from flashverify.numerics.coefficients import LN2
from flashverify.numerics.known_absent import below, nowhere, without

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor

    from flashverify.numerics.bound_inputs import BoundInputs
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficients import Coefficients
    from flashverify.numerics.result import ForwardBounds

__all__ = ["OffBy", "Picked", "Start", "side_by_side"]

_SIDE_BY_SIDE = 4
"""Axes of a tensor of several modes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OffBy:
    """How far O may be off, `[G, M, Dv]`; `exact`, bool, are the modes side by side in which it is the very number, None where it is in none."""

    size: Tensor
    exact: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """O and the LSE in one chunk; rows are `[G, M, 1]`.

    Attributes:
        o: `[G, M, Dv]`, 0 in rows that are empty or not finite.
        L: The LSE, natural, likewise.
        B_o: How far O may be off, for B; E_o for E64; None where nothing is.
        underflow: The part of B_o that comes from underflow, None in the conditional mode.
        B_L: How far the LSE may be off, for B; E_L for E64; None in the conditional mode.
        lost_p: bool, rows whose P is lost because of the LSE; lost_ds those whose dS is because of O.
        base: Relative to |L|, what a conversion of its base adds to the exponent of the subject; base_self of the oracle.
    """

    o: Tensor
    L: Tensor
    B_o: OffBy | None
    E_o: OffBy | None
    underflow: Tensor | None
    B_L: Tensor | None
    E_L: Tensor | None
    lost_p: Tensor
    lost_ds: Tensor
    base: float | Tensor
    base_self: float | Tensor

    @classmethod
    def of(
        cls, problem: BoundInputs, chunk: Chunk, c: Coefficients, c64: Coefficients, *, o: Tensor, lse: Tensor, error_o: Tensor | None,
        forward: ForwardBounds | None, stored: Collection[str],
    ) -> Start:  # fmt: skip
        """The start of one mode; the arguments are those of `backward_bounds`, and `error_o` that of `error_of_o`."""
        rows, empty = chunk.rows, chunk.empty
        o = without(empty, problem.cut(o, rows))
        L = problem.cut(lse.unsqueeze(-1), rows).masked_fill(empty, 0.0)
        stored_o, stored_L = ~finite_rows(o), ~finite(L)
        lost_p, lost_ds = stored_L, stored_o
        underflow = E_o = B_L = E_L = None
        if forward is not None and "o" not in stored:
            E_o = problem.cut(forward.o.self_error, rows)
            if problem.form.delta_from != "p":
                underflow = problem.cut(forward.o_underflow, rows)
                if not (nowhere(forward.o.may_overflow) and below(forward.o.bound, torch.inf)):
                    o_over = problem.cut(forward.o.may_overflow | forward.o.exempt, rows).any(-1, keepdim=True)
                    lost_ds = stored_o | o_over
        if forward is not None and "lse" not in stored:
            both = problem.cut(forward.lse_base2, rows) * LN2
            lse_over = both[..., :1] == torch.inf
            B_L, E_L, lost_p = without(lse_over, both[..., :1]), both[..., 1:], stored_L | lse_over
        B_o = None if error_o is None else problem.cut(error_o, rows)
        if B_o is not None and not below(B_o, torch.inf):
            B_o = torch.where(torch.isinf(B_o), 0.0, B_o)
        base, base_self = (x.base_bwd_conditional if B_L is None else x.base_bwd for x in (c, c64))
        return cls(
            o=without(stored_o, o), L=without(stored_L, L), B_o=None if B_o is None else OffBy(size=B_o), E_o=None if E_o is None else OffBy(size=E_o),
            underflow=underflow, B_L=B_L, E_L=E_L, lost_p=lost_p, lost_ds=lost_ds, base=base, base_self=base_self,
        )  # fmt: skip


def side_by_side(starts: Sequence[Start]) -> Start:
    """The starts of several modes as one; that of a single one itself."""
    if len(starts) == 1:
        return starts[0]

    def stacked(name: str) -> Any:
        values = [getattr(start, name) for start in starts]
        there = [value for value in values if value is not None]
        if not there:
            return None
        if isinstance(there[0], float):
            return there[0] if values.count(there[0]) == len(values) else _numbers(starts[0], values)
        if isinstance(there[0], OffBy):
            zero = torch.zeros_like(there[0].size)
            size = torch.stack([zero if value is None else value.size for value in values])
            absent = [value is None for value in values]
            return OffBy(size=size, exact=_numbers(starts[0], absent) if any(absent) else None)
        zero = torch.zeros_like(there[0])
        return torch.stack([zero if value is None else value for value in values])

    return Start(**{field.name: stacked(field.name) for field in fields(Start)})


def _numbers(start: Start, values: Sequence[Any]) -> Tensor:
    """A number for each mode, made on the device itself."""
    first = values[0]
    found = torch.full((len(values), 1, 1, 1), first, device=start.o.device, dtype=_dtype(first))
    for number, value in enumerate(values):
        if value != first:
            found[number].fill_(value)
    return found


def _dtype(value: Any) -> torch.dtype:
    return torch.bool if isinstance(value, bool) else torch.float64


class Picked:
    """One of the modes side by side: what an object holds, of each tensor of several modes this one's."""

    def __init__(self, found: Any, number: int) -> None:
        self._found, self._number = found, number

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._found, name)
        return found[self._number] if torch.is_tensor(found) and found.dim() == _SIDE_BY_SIDE else found
