"""What a hypothesis expects of one output, and whether an output is that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.result import OutputBound

__all__ = ["Expected", "explains", "of_bound"]

_CLEAR = 0.25
"""A hypothesis explains an error clearly where its own bound is at most so much of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """One output under a hypothesis.

    Attributes:
        value: float64, in the shape and units of the output.
        total: largest distance from it, float64; +inf where nothing is asked.
        overflow: bool, an infinity of the right sign is accepted.
        nan: bool or None: elements that are not finite.
        lost: bool or None: elements that may be not finite as well.
        anything: bool or None: elements that may be anything, which is what the hypothesis says of them.
        zero: bool or None, broadcasts: elements that may be 0 as well.
        strict: a second expectation that must hold too, of the declared semantics only; or None.
        other: value and distance of a second expectation, a negative distance where there is none; or None.
    """

    value: Tensor
    total: Tensor
    overflow: Tensor
    nan: Tensor | None = None
    lost: Tensor | None = None
    anything: Tensor | None = None
    zero: Tensor | None = None
    strict: Expected | None = None
    other: tuple[Tensor, Tensor] | None = None

    def times(self, factor: Tensor | float) -> Expected:
        """Everything times `factor`, which broadcasts; the rounding of the output grows no smaller than it was near 0."""
        size = factor.abs() if isinstance(factor, torch.Tensor) else abs(factor)
        value = torch.where(self.value == 0, self.value, self.value * factor)
        total = torch.where(self.total == 0, self.total, self.total * size)
        return replace(self, value=value, total=total, strict=None)

    def pinned(self, where: Tensor, value: float) -> Expected:
        """Exactly `value` on the elements `where`, bool, which broadcasts."""
        where = where.expand_as(self.value)
        return replace(
            self,
            value=self.value.masked_fill(where, value),
            total=self.total.masked_fill(where, 0.0),
            overflow=self.overflow & ~where,
        )

    def not_finite(self, where: Tensor) -> Expected:
        """Not finite on the elements `where`, bool, which broadcasts."""
        where = where.expand_as(self.value)
        return replace(self, nan=where if self.nan is None else self.nan | where)

    def maybe_lost(self, where: Tensor) -> Expected:
        """Perhaps not finite on the elements `where`, bool, which broadcasts."""
        return replace(self, lost=where.expand_as(self.value))

    def whatever(self, where: Tensor) -> Expected:
        """Anything on the elements `where`, bool, which broadcasts."""
        return replace(self, anything=where.expand_as(self.value))

    def unstored(self, where: Tensor, declared: Expected, got: Tensor) -> Expected:
        """Nothing stores the elements `where`, bool: they may be anything but what is declared, which no memory holds by chance.

        Where `got` holds it on one of them, all of them are expected not to be finite.
        """
        if not bool(where.any()):
            return self
        right = declared.holds(got) & torch.isfinite(declared.total)
        return self.not_finite(where) if bool((where & right).any()) else self.whatever(where)

    def open(self, where: Tensor) -> Expected:
        """Nothing is asked of the elements `where`, bool, which broadcasts."""
        return replace(self, total=self.total.masked_fill(where.expand_as(self.total), math.inf))

    def overflowing(self, largest: float) -> Expected:
        """An infinity is accepted too where the value, or its distance, reaches `largest`, the largest finite number of the dtype."""
        return replace(self, overflow=self.overflow | (self.value.abs() + self.total >= largest))

    def within(self, where: Tensor, outside: Expected) -> Expected:
        """This expectation on the elements `where`, bool, and the other one elsewhere; what is strict is left out."""

        def either(a: Tensor | None, b: Tensor | None) -> Tensor | None:
            if a is None and b is None:
                return None
            nowhere = torch.zeros((), dtype=torch.bool)
            return torch.where(where, nowhere if a is None else a, nowhere if b is None else b)

        other = None
        if self.other is not None:
            other = self.other[0], torch.where(where, self.other[1], -1.0)
        return Expected(
            value=torch.where(where, self.value, outside.value),
            total=torch.where(where, self.total, outside.total),
            overflow=torch.where(where, self.overflow, outside.overflow),
            nan=either(self.nan, outside.nan),
            lost=either(self.lost, outside.lost),
            anything=either(self.anything, outside.anything),
            zero=either(self.zero, outside.zero),
            other=other,
        )

    def plus(self, more: Expected, least: Expected) -> Expected:
        """The sum of two parts of an output, no closer than `least`; what is strict is left out."""
        lost = [x for x in (self.nan, self.lost, more.nan, more.lost) if x is not None]
        return Expected(
            value=self.value + more.value,
            total=torch.maximum(self.total + more.total, least.total),
            overflow=self.overflow | more.overflow | least.overflow,
            lost=torch.stack(lost).any(0) if lost else None,
            anything=self.anything,
            zero=least.zero,
        )

    def holds(self, got: Tensor, free: Tensor | None = None) -> Tensor:
        """Bool: the elements of `got`, float64, that are as expected; those `free` always are."""
        near = (got - self.value).abs() <= self.total
        fits = near | (got == self.value) | torch.isinf(self.total)
        fits |= torch.isinf(got) & self.overflow & (torch.sign(got) == torch.sign(self.value))
        if self.zero is not None:
            fits |= self.zero & (got == 0)
        if self.lost is not None:
            fits |= self.lost & ~torch.isfinite(got)
        if self.anything is not None:
            fits |= self.anything
        if self.other is not None:
            fits |= (got - self.other[0]).abs() <= self.other[1]
        if self.nan is not None:
            fits = torch.where(self.nan, ~torch.isfinite(got), fits)
        if self.strict is not None:
            fits &= self.strict.holds(got)
        return fits if free is None else fits | free


def of_bound(value: Tensor, bound: OutputBound) -> Expected:
    """The expectation of an oracle's value and its bound."""
    total = torch.where(bound.exempt | ~torch.isfinite(value), math.inf, bound.total)
    return Expected(value=value, total=total, overflow=bound.may_overflow)


def explains(wrong: Expected, right: Expected, got: Tensor, failing: Tensor, *, clearly: bool) -> bool:
    """Whether `wrong` accounts for the elements `failing` of `got`, which are not what `right` expects, and not by asking nothing.

    Args:
        wrong: what the hypothesis expects.
        right: what is declared.
        got: the output, float64.
        failing: bool, the elements.
        clearly: its bound must be small beside the error, on one element at least.
    """
    error = (got - right.value).abs()
    share = _CLEAR if clearly else 1.0
    close = torch.isfinite(wrong.value) & (wrong.total < share * error)
    # An error that is not finite is explained by an expectation that says so, or that is the very same.
    same = (got == wrong.value) & (wrong.total == 0)
    for said in (wrong.nan, wrong.lost):
        if said is not None:
            same = same | (said & ~torch.isfinite(got))
    if wrong.anything is not None:
        same = same | wrong.anything
    if wrong.other is not None:
        same = same | ((got - wrong.other[0]).abs() <= wrong.other[1])
    return bool((failing & (close | same)).any())
