"""The bounds of one output, and how to read them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.formats import Format
from flashverify.numerics.known_absent import below, nowhere

__all__ = ["BackwardBounds", "ForwardBounds", "OutputBound", "StrictBound"]

_SELF_ERROR_LIMIT = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputBound:
    """Bound of every element of one output. An element x is right when `|x - oracle| <= bound + self_error`.

    Attributes:
        bound: B, float64, in the units of the output; +inf where the element is exempt (section 13), 0 where the value is exact.
        self_error: E64, the float64 oracle's own error, in the same units.
        may_overflow: bool: an infinity of the right sign is accepted as well as a finite value within the bound.
        may_flip: bool: one of the opposite sign is accepted too, because the bound reaches past 0 to the other end of the range.
        must_overflow: bool: an infinity of the right sign is required.
        uninformative: bool: finite, but wider than the trivial range of the element and its underflow, or `needs_exact`.
    """

    bound: Tensor
    self_error: Tensor
    may_overflow: Tensor
    may_flip: Tensor
    must_overflow: Tensor
    uninformative: Tensor

    @property
    def total(self) -> Tensor:
        """`bound + self_error`, the denominator of a ratio."""
        return self.bound + self.self_error

    def united(self, others: Sequence["OutputBound"]) -> "OutputBound":
        """The bound of an element that is right where it is right under one of several bounds of the same value."""
        found = self
        for x in others:
            found = OutputBound(
                bound=torch.maximum(found.bound, x.bound),
                self_error=torch.maximum(found.self_error, x.self_error),
                may_overflow=found.may_overflow | x.may_overflow,
                may_flip=found.may_flip | x.may_flip,
                must_overflow=found.must_overflow & x.must_overflow,
                uninformative=found.uninformative | x.uninformative,
            )
        return found

    @property
    def exempt(self) -> Tensor:
        """bool: elements with no finite bound, about which nothing is asked."""
        return self.bound == torch.inf

    @property
    def needs_exact(self) -> Tensor:
        """bool: elements for which float64 is no oracle, `E64 > 1e-2 B`."""
        return self.self_error > _SELF_ERROR_LIMIT * self.bound


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrictBound:
    """What section 14 knows about one output: elements for which it is sharper have a value and a bound of their own.

    Attributes:
        value: What the output must be, float64: predicted where sharper, else the oracle's.
        bound: Its bound, the ordinary one where nothing is sharper.
        sharper: bool: elements that are predicted.
    """

    value: Tensor
    bound: OutputBound
    sharper: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForwardBounds:
    """Bounds of the forward.

    Attributes:
        o: Of O, `[B, Hq, Sq, Dv]`.
        lse: Of the LSE, `[B, Hq, Sq]`, in the base of `form.lse_base`.
        lse_base2: Of the LSE in base 2 before any conversion, absolute, `[B, Hq, Sq, 2]`: B and E64.
        o_unrounded: B of O before its rounding, `[B, Hq, Sq, Dv]`, 0 where O is exact.
        o_underflow: The part of O's B that comes from underflow and flushing, `[B, Hq, Sq, Dv]`.
        strict: Of O, where the order of the tiles is declared, or None.
    """

    o: OutputBound
    lse: OutputBound
    lse_base2: Tensor
    o_unrounded: Tensor
    o_underflow: Tensor
    strict: StrictBound | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BackwardBounds:
    """Bounds of the backward.

    Attributes:
        delta: Of what a returned delta holds (`Form.stored_delta`), `[B, Hq, Sq]`.
        dq: `[B, Hq, Sq, D]`.
        dk: `[B, Hkv, Sk, D]`.
        dv: `[B, Hkv, Sk, Dv]`.
        dbias: In the bias's shape, or None.
        dsink: `[Hq]`, or None.
        drelative_bias: `[Hq, buckets]`, or None.
        strict: Of dV in the conditional mode, where the order of the tiles is declared, or None.
    """

    delta: OutputBound
    dq: OutputBound
    dk: OutputBound
    dv: OutputBound
    dbias: OutputBound | None = None
    dsink: OutputBound | None = None
    drelative_bias: OutputBound | None = None
    strict: StrictBound | None = None


def rounded(before: Tensor, size: Tensor, u: float, eta: float) -> Tensor:
    """The error of an output from that before its rounding: `b + u (|y| + b) + eta`; `size` is |y|, and u is 0 where nothing is rounded."""
    return torch.add(before, size + before, alpha=u).add_(eta) if u else before + eta


def finish(
    y: Tensor,
    unrounded: Tensor,
    bound: Tensor,
    self_error: Tensor,
    *,
    exact: Tensor,
    exempt: Tensor,
    trivial: Tensor,
    out: Format,
    size: Tensor | None = None,
) -> OutputBound:
    """Classify the elements of one output.

    An infinity is required when even `|y| - B` lies above `max (1 + u)`, and accepted when `|y| + B` before the rounding of the output reaches the
    overflow threshold `max + ulp / 2`.

    Args:
        y: The oracle's values; non-finite ones make the element exempt.
        unrounded: B before the rounding of the output.
        bound: B.
        self_error: E64.
        exact: bool, elements that are exact by contract.
        exempt: bool, elements about which nothing is asked.
        trivial: Largest magnitude that the element could have with weights in [0, 1], and twice every absolute error of underflow and flushing
            with such weights, which never makes an element uninformative.
        out: Format of the output.
        size: Magnitudes of `y`, where they are known.

    Returns:
        The bound, with `exact` elements at 0 and `exempt` ones at +inf.
    """
    size, kept, inside = y.abs() if size is None else size, None, None
    # What does not come near the end of the range neither overflows nor flips.
    largest = (size + unrounded).add_(self_error)
    calm = below(largest, out.overflow)
    if not (nowhere(exact) and nowhere(exempt) and (calm or below(size, torch.inf))):
        inside = (size < torch.inf) & ~(exempt | exact)
        kept = inside | exact
        bound = bound.masked_fill(exact, 0.0).masked_fill_(~kept, torch.inf)
        self_error = torch.where(inside, self_error, 0.0)
    if calm:
        may_overflow = may_flip = must_overflow = torch.zeros_like(largest, dtype=torch.bool)
    else:
        kept = torch.ones_like(size, dtype=torch.bool) if kept is None else kept
        near, inside = largest >= out.overflow, ~exact if inside is None else inside
        may_overflow = near & inside
        may_flip = (unrounded + self_error - size >= out.overflow) & inside
        must_overflow = (size - bound - self_error > out.max * (1 + out.u)) & kept
    uninformative = (bound > trivial).logical_or_(self_error > _SELF_ERROR_LIMIT * bound)
    return OutputBound(
        bound=bound,
        self_error=self_error,
        may_overflow=may_overflow,
        may_flip=may_flip,
        must_overflow=must_overflow,
        uninformative=uninformative if kept is None else uninformative & kept,
    )


def exactly(x: Tensor) -> OutputBound:
    """The bound of an output whose every element is exact."""
    zero, no = torch.zeros_like(x, dtype=torch.float64), torch.zeros_like(x, dtype=torch.bool)
    return OutputBound(bound=zero, self_error=zero, may_overflow=no, may_flip=no, must_overflow=no, uninformative=no)


def check(*outputs: OutputBound) -> None:
    """Raise AssertionError if a bound is NaN or negative: a defect of the bounds, never of a subject."""
    least = [y.amin() for x in outputs for y in (x.bound, x.self_error) if y.numel()]  # NaN where one is
    if least and not bool((torch.stack(least) >= 0).all()):
        raise AssertionError("a bound is NaN or negative")
