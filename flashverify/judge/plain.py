"""An output of which every element is compared and right, on the CPU: its statistics without the masks of what is not compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from flashverify.judge.summary import counted, summary

if TYPE_CHECKING:
    import torch

    from flashverify.judge.summary import Summary
    from flashverify.numerics.result import OutputBound

__all__ = ["Plain", "plain_comparison", "within"]


class Plain(NamedTuple):
    """What is counted of it.

    Attributes:
        uninformative: elements whose bound says nothing.
        telling: elements that are larger than their bound.
        signed: mean of the errors relative to their bounds, with their signs.
        summary: the worst ratio, its place, the median and the 99th percentile.
    """

    uninformative: int
    telling: int
    signed: float
    summary: Summary


def within(x: torch.Tensor, expected: torch.Tensor, bound: OutputBound) -> bool:
    """Whether every element of `x`, float64 on the CPU, is known to be within its bound, exempt ones too, and none has to overflow."""
    from flashverify.numerics.known_absent import nowhere

    if x.is_cuda or not nowhere(bound.must_overflow):
        return False
    return not x.numel() or float(((x - expected).abs_() - bound.total).amax()) <= 0


def plain_comparison(
    x: torch.Tensor, expected: torch.Tensor, bound: OutputBound, *masks: torch.Tensor | None
) -> Plain | None:
    """The statistics of a right output; None where an element is wrong, infinite, exempt, or in one of the masks, and of a GPU.

    Args:
        x: the subject's values, float64.
        expected: the oracle's.
        bound: of the subject's form.
        masks: bool, each broadcasts to `x`, or None.
    """
    from flashverify.numerics.known_absent import below, nowhere

    if x.is_cuda or not x.numel() or not all(mask is None or nowhere(mask) for mask in masks):
        return None
    if not (nowhere(bound.may_overflow) and nowhere(bound.must_overflow) and below(bound.bound, math.inf)):
        return None
    total = bound.total
    if not math.isfinite(float(x.sum())):
        return None
    difference = x - expected
    signed = difference / total
    if not float(total.amin()) > 0:
        signed.masked_fill_(difference == 0, 0.0)
    ratio = signed.abs()
    if not float(ratio.amax()) <= 1:
        return None
    count = x.numel()
    amount, (vague, small) = counted(signed.clamp_(-1, 1).sum(), (bound.uninformative, expected.abs() <= total))
    return Plain(
        uninformative=vague, telling=count - small, signed=(amount + 0.0) / count, summary=summary(ratio, None)
    )
