"""Models of the weights in effect: logits of the pairs, up to a factor of each row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = [
    "DECLARED",
    "GONE",
    "Deviation",
    "Model",
    "deviation_of",
    "kept_factor",
    "pieces_of",
    "row_shift",
    "tolerance_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What O weighs.

    Attributes:
        words: in what its logits differ from the declared ones; empty for these.
        logits: of an effect, float64 `[B, Hq, Sq, Sk]`, -inf at pairs that do not enter; None where it says nothing of the case.
        kept: what dropout multiplies the weights by, `[B, Hq, Sq, Sk]`; None where it says nothing of the case.
    """

    words: str
    logits: Callable[[Effect], Tensor | None]
    kept: Callable[[Effect], Tensor | None]


GONE = -1e6
"""The shift of a row that sees keys and weighs none."""


def _declared(effect: Effect) -> Tensor:
    return effect.logits.masked_fill(~effect.visible, -math.inf)


def kept_factor(effect: Effect) -> Tensor:
    """What dropout multiplies each weight by."""
    inputs = effect.scene.inputs
    if inputs.keep is None:
        return torch.ones(1, 1, 1, 1, dtype=torch.float64)
    factor: Tensor = inputs.keep.double() / (1.0 - inputs.dropout)
    return factor


DECLARED = Model("", _declared, kept_factor)


def row_shift(effect: Effect, model: Model) -> Tensor | None:
    """What is to be added to the logits of `model`, `[B, Hq, Sq, 1]`, so that their exponentials are the weights in effect; None where nothing makes them so."""
    logits, kept = model.logits(effect), model.kept(effect)
    if logits is None or kept is None:
        return None
    factor = kept.expand_as(effect.weights)
    whole = torch.logsumexp(logits, -1, keepdim=True)
    share = (logits - whole.nan_to_num(0.0, 0.0, 0.0)).exp()
    readable = (share > effect.floor) & (factor > 0) & (effect.weights > effect.floor)
    off = torch.where(readable, (effect.weights / factor.clamp(min=1e-9)).clamp(min=1e-300).log() - logits, math.nan)
    heavy = share >= 1e-3 * share.amax(
        -1, keepdim=True
    )  # of small weights the absolute error of a 16-bit O is relatively larger
    shift = torch.where(heavy, off, math.nan).nanmedian(-1, keepdim=True).values
    shift = torch.where(shift.isnan(), -whole, shift)
    shift = torch.where(torch.isfinite(shift), shift, 0.0)
    nothing = (effect.weights <= effect.floor / 4).all(-1, keepdim=True)
    expected = (share * factor > effect.floor).any(-1, keepdim=True)  # else dropout drops all of the row
    shift = torch.where(nothing & expected & torch.isfinite(whole), GONE, shift)
    predicted = (logits + shift).exp() * factor
    return shift if bool(effect.near(predicted).all()) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deviation:
    """How the logits in effect differ from the declared ones, `[B, Hq, Sq, Sk]`.

    Attributes:
        off: logit in effect minus the declared one, 0 for most keys of each row; -inf where a visible key has no weight, NaN where
            nothing can be read.
        wrong: bool, visible pairs that are off.
        hidden: bool, hidden pairs that have a weight.
        logit: of all pairs, in effect, on the scale of the declared ones.
        read: bool, pairs about which something is known.
    """

    off: Tensor
    wrong: Tensor
    hidden: Tensor
    logit: Tensor
    read: Tensor


def deviation_of(effect: Effect) -> Deviation:
    """The deviation, found once."""
    memo = effect.scene.memo
    if "deviation" not in memo:
        memo["deviation"] = _deviation(effect)
    found: Deviation = memo["deviation"]
    return found


def _deviation(effect: Effect) -> Deviation:
    factor = kept_factor(effect).expand_as(effect.weights)
    weights = effect.weights / torch.where(factor > 0, factor, 1.0)
    declared = (effect.exact / torch.where(factor > 0, factor, 1.0)).clamp(min=1e-300)
    readable = effect.visible & (effect.exact > 16 * effect.floor) & effect.asked
    gone = weights <= effect.floor / 4
    raw = torch.where(gone, -math.inf, weights.clamp(min=1e-300).log()) - declared.log()
    raw = torch.where(readable, raw, math.nan)
    tolerance = tolerance_of(effect)
    most = _most(raw, effect.relative + 1e-6)
    off = raw - most
    wrong = readable & ~(off.abs() <= tolerance)
    hidden = ~effect.visible & (weights > 16 * effect.floor) & effect.asked
    exact_lse = effect.scene.truth.exact_lse.unsqueeze(-1)
    logit = torch.where(gone, -math.inf, weights.clamp(min=1e-300).log()) + exact_lse - most
    off = torch.where(wrong, off, torch.where(readable, 0.0, math.nan))
    return Deviation(off=off, wrong=wrong, hidden=hidden, logit=logit, read=readable)


def tolerance_of(effect: Effect) -> Tensor:
    """How far a logit in effect may be off by rounding, `[B, Hq, Sq, Sk]`: more where the weight is hardly a normal number."""
    exact = torch.where(effect.exact > 0, effect.exact, 1.0)
    return effect.relative + 1e-6 + torch.where(effect.exact > 0, effect.floor / 4 / exact, 0.0)


def _most(raw: Tensor, tolerance: Tensor) -> Tensor:
    """The value `[B, Hq, Sq, 1]` near which most entries of each row lie; 0 where that is as good as any."""
    clean = torch.where(torch.isfinite(raw), raw, math.inf)
    ordered = clean.sort(-1).values.contiguous()
    width = (2 * tolerance).expand(*ordered.shape[:3], 1)
    last = torch.searchsorted(ordered, ordered + width, right=True)
    count = last - torch.arange(ordered.shape[-1])
    count = torch.where(torch.isfinite(ordered), count, 0)
    best = count.argmax(-1, keepdim=True)
    most = count.gather(-1, best)
    value = ordered.gather(-1, (best + most // 2).clamp(max=ordered.shape[-1] - 1))
    zero = (clean.abs() <= tolerance).sum(-1, keepdim=True)
    return torch.where((zero >= most) | ~torch.isfinite(value), 0.0, value)


def pieces_of(effect: Effect) -> Tensor | None:
    """The number of the piece of each key, int64 `[B, Sk]`, if the logits in effect are off by something of their own in each of a few pieces of a sequence's keys."""
    off = deviation_of(effect).off
    near = tolerance_of(effect)
    jump = ((off[..., 1:] - off[..., :-1]).abs() > near[..., 1:] + near[..., :-1]).any(1).any(1)
    count = int(jump.sum(-1).amax()) if jump.numel() else 0
    if not 0 < count <= min(16, max(1, off.shape[-1] // 3)):
        return None
    return torch.nn.functional.pad(jump.long().cumsum(-1), (1, 0))
