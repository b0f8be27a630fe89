"""What one chunk of rows contributes to the bounds, and how the contributions of all chunks are joined.

Rows stand one after the other; sums over rows are added in the order of the chunks, exemptions united.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

from torch import Tensor

from flashverify.numerics.bound_inputs import BoundInputs

__all__ = ["ForwardTerms", "KeySum", "KeyTerms", "PredictedSum", "RowTerms", "joined_rows"]

T = TypeVar("T")


def joined_rows(problem: BoundInputs, parts: Sequence[T]) -> T:
    """Terms of all chunks as one: each tensor `[G, M, C]` of a dataclass becomes `[B, Hq, Sq, C]`; what is None stays None.

    Args:
        problem: The problem whose chunks they are.
        parts: Instances of one dataclass, one a chunk.
    """
    first: Any = parts[0]

    def joined(name: str) -> Tensor | None:
        return None if getattr(first, name) is None else problem.join([getattr(part, name) for part in parts])

    made: T = type(first)(**{field.name: joined(field.name) for field in fields(first)})
    return made


@dataclass(slots=True, kw_only=True, eq=False)
class ForwardTerms:
    """Terms of the forward, of O `[G, M, Dv]`, of the LSE and of rows `[G, M, 1]`.

    Attributes:
        o: The oracle's O; its B before and after the rounding of the output, E64, what of B comes from underflow, where it is exempt,
            and its trivial range, `[G, M, 1]` or `[G, M, Dv]`.
        lse: The oracle's, natural; its B and E64 in base 2, where it is exempt, and its trivial range in base 2.
        empty: Rows that see nothing.
        strict: The predicted O and its error (section 14), or None.
    """

    o: Tensor
    o_before: Tensor
    o_after: Tensor
    o_self: Tensor
    o_flushed: Tensor
    o_exempt: Tensor
    o_trivial: Tensor
    lse: Tensor
    lse_bound: Tensor
    lse_self: Tensor
    lse_exempt: Tensor
    lse_trivial: Tensor
    empty: Tensor
    strict: Tensor | None
    strict_error: Tensor | None


@dataclass(slots=True, kw_only=True, eq=False)
class RowTerms:
    """Terms of delta `[G, M, 1]` and dQ `[G, M, D]`.

    Attributes:
        delta: What a returned delta holds; its B, E64 and trivial range, and where it is exempt.
        dq: The oracle's dQ; its errors before finalisation for B (`core`) and E64, its trivial range, and where it is exempt.
        empty: Rows that see nothing.
        dq_exact: Those whose dQ is exact.
    """

    delta: Tensor
    delta_bound: Tensor
    delta_self: Tensor
    delta_trivial: Tensor
    delta_exempt: Tensor
    dq: Tensor
    dq_core: Tensor
    dq_self: Tensor
    dq_trivial: Tensor
    dq_exempt: Tensor
    empty: Tensor
    dq_exact: Tensor


@dataclass(slots=True, kw_only=True, eq=False)
class KeySum:
    """A gradient that is a sum over rows, dK or dV: `[G, N, C]`, but for `hidden` `[G, N, 1]`.

    Attributes:
        core: Error before finalisation, for B.
        self_core: The same for E64.
        trivial: Trivial range.
        exempt: bool, elements about which nothing is asked.
        hidden: bool, keys that are exempt even if no row sees them.
    """

    core: Tensor
    self_core: Tensor
    trivial: Tensor
    exempt: Tensor
    hidden: Tensor

    def join(self, other: Self) -> Self:
        """The sum with that of further rows."""
        return type(self)(
            core=self.core + other.core,
            self_core=self.self_core + other.self_core,
            trivial=self.trivial + other.trivial,
            exempt=self.exempt | other.exempt,
            hidden=self.hidden | other.hidden,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class PredictedSum:
    """DV from the weights as they must be rounded, and its error before finalisation (section 14), `[G, N, Dv]`."""

    value: Tensor
    core: Tensor

    def join(self, other: Self) -> Self:
        """The sum with that of further rows."""
        return type(self)(value=self.value + other.value, core=self.core + other.core)


@dataclass(slots=True, kw_only=True, eq=False)
class KeyTerms:
    """Terms of dK and dV.

    Attributes:
        dk: Of dK.
        dv: Of dV.
        seen: bool `[G, N, 1]`, keys that a row sees.
        strict: The predicted dV, or None.
    """

    dk: KeySum
    dv: KeySum
    seen: Tensor
    strict: PredictedSum | None

    def join(self, other: Self) -> Self:
        """The terms of these rows and of further ones."""
        strict = None if self.strict is None or other.strict is None else self.strict.join(other.strict)
        return type(self)(
            dk=self.dk.join(other.dk), dv=self.dv.join(other.dv), seen=self.seen | other.seen, strict=strict
        )
