"""An output that is right wherever it is compared, on the CPU: its statistics without the census of what is wrong."""

from __future__ import annotations

import functools
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
        exempt: elements of which nothing is asked.
        uninformative: elements whose bound says nothing.
        telling: elements that are larger than their bound.
        signed: mean of the errors relative to their bounds, with their signs; None of nothing.
        summary: the worst ratio, its place, the median and the 99th percentile.
    """

    exempt: int
    uninformative: int
    telling: int
    signed: float | None
    summary: Summary


def within(x: torch.Tensor, expected: torch.Tensor, bound: OutputBound) -> bool:
    """Whether every element of `x`, float64 on the CPU, is known to be within its bound, exempt ones too, and none has to overflow."""
    from flashverify.numerics.known_absent import nowhere

    if x.is_cuda or not nowhere(bound.must_overflow):
        return False
    return not x.numel() or float(((x - expected).abs_() - bound.total).amax()) <= 0


def plain_comparison(
    x: torch.Tensor,
    expected: torch.Tensor,
    bound: OutputBound,
    *,
    taint: torch.Tensor | None = None,
    pinned: torch.Tensor | None = None,
    pinned_value: float = 0.0,
    undefined: torch.Tensor | None = None,
) -> Plain | None:
    """The statistics of a right output; None where a compared element is wrong or may overflow, and of a GPU.

    Args:
        x: the subject's values, float64; the other arguments are those of `compare_output`.
        expected: the oracle's.
        bound: of the subject's form.
        taint: bool, broadcasts to `x`.
        pinned: likewise.
        pinned_value: the contract's value there.
        undefined: likewise.
    """
    from flashverify.numerics.known_absent import nowhere

    may, must = bound.may_overflow, bound.must_overflow
    if x.is_cuda or not x.numel() or not (nowhere(may) and (must is may or nowhere(must))):
        return None
    taint, pinned, undefined = (None if mask is None or nowhere(mask) else mask for mask in (taint, pinned, undefined))
    total = bound.total
    least, most = float(total.amin()), float(total.amax())  # torch.aminmax takes longer
    free = _united(None if most < math.inf else bound.exempt, taint, undefined)
    left_out = _united(free, pinned)
    difference = x - expected
    signed = difference / total
    if left_out is not None or not least > 0:
        nothing = difference == 0
        signed.masked_fill_(nothing if left_out is None else nothing | left_out, 0.0)
    ratio = signed.abs()
    if not float(ratio.amax()) <= 1 or not _holds(x, pinned, pinned_value, _united(taint, undefined)):
        return None
    signed, vague, small = signed.clamp_(-1, 1), bound.uninformative, expected.abs() <= total
    if left_out is None:
        sum_of, (unclear, low) = counted(signed.sum(), (vague, small))
        return Plain(0, unclear, x.numel() - low, (sum_of + 0.0) / x.numel(), summary(ratio, None))
    judged = ~left_out.expand_as(x)
    masks = [judged, vague & judged, small & judged, *([] if free is None else [free.expand_as(x)])]
    sum_of, (count, unclear, low, *exempt) = counted(signed.contiguous().sum(), masks)  # in the order of the census
    return Plain(sum(exempt), unclear, count - low, sum_of / count if count else None, summary(ratio, judged))


def _united(*masks: torch.Tensor | None) -> torch.Tensor | None:
    """The elements of any mask; None where there is none."""
    return functools.reduce(lambda a, b: b if a is None else a if b is None else a | b, masks)


def _holds(x: torch.Tensor, pinned: torch.Tensor | None, value: float, left_open: torch.Tensor | None) -> bool:
    """Whether the elements that a contract fixes have its value, where nothing leaves them open."""
    from flashverify.numerics.known_absent import nowhere

    if pinned is None:
        return True
    wrong = pinned & (x != value)
    return nowhere(wrong if left_open is None else wrong & ~left_open)
