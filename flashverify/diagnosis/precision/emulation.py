"""The forward in float64 with the roundings of a kernel at single steps, tile after tile."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.precision.products import logit_operands, times
from flashverify.diagnosis.precision.rounding import same, to_dtype
from flashverify.diagnosis.precision.steps import logits_of, operands, tiles

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.rounding import Rounding
    from flashverify.diagnosis.precision.steps import Steps

__all__ = ["forward"]


class _Running(NamedTuple):
    """Maximum and row sum `[B, Hq, Sq, 1]`, and the accumulator of O, after the last tile."""

    top: Tensor
    total: Tensor
    acc: Tensor


def forward(scene: Scene, steps: Steps) -> dict[str, Tensor]:
    """O and LSE, the latter in the units of the subject. NaN where every weight of a row vanishes, about which a kernel is free."""
    i = operands(scene, steps)
    z = logits_of(logit_operands(i, steps), steps)
    v = i.v.repeat_interleave(scene.group, 1)
    kept = None if i.keep is None else i.keep.double() / (1.0 - i.dropout)
    if kept is not None and steps.scaled_v is not None:
        kept, v = kept * (1.0 - i.dropout), steps.scaled_v(v / (1.0 - i.dropout))
    if steps.code_sum is not same and i.v_scale is not None:
        steps = replace(steps, accumulator=_in_codes(i.v_scale, scene.group, steps.code_sum))
    pieces = [_walk(z, v, kept, piece, steps) for piece in _pieces(z.shape[-1], steps)]
    unit = scene.unit if steps.unit == 1.0 else steps.unit
    if len(pieces) < 2:
        found = pieces[0] if pieces else _walk(z, v, kept, slice(0, 0), steps)
        top, total, acc = found
        pivot, some = _pivot(top)
        if i.sink is not None:
            total = total + (i.sink.view(1, -1, 1, 1) - pivot).exp() * some
        o, lse = _finished(pivot, some, total, acc, steps)
        if steps.p_normalised is not None:
            p = (z - lse).exp().masked_fill(~some, 0.0)
            o = steps.p_normalised(p if kept is None else p * kept) @ v
    else:
        o, lse, some = _merged(pieces, steps, None if i.sink is None else i.sink.view(1, -1, 1, 1))
    lse = torch.where(some, lse, -torch.inf).squeeze(-1)
    return {"o": steps.o(o), "lse": steps.lse(lse / unit) * (unit / scene.unit)}


def _in_codes(scale: Tensor, group: int, rounding: Rounding) -> Rounding:
    """Of a sum over codes of V whose scale `[B, Hkv, Sk, 1]` every declared key of a head has."""
    if not scale.shape[2]:
        return rounding
    whole = scale.double().amax(2, keepdim=True).repeat_interleave(group, 1)
    whole = torch.where(whole > 0, whole, 1.0)
    return lambda x: rounding(x / whole) * whole


def _pieces(keys: int, steps: Steps) -> list[slice]:
    """Whole tiles, as many in each of the splits or one less; or pieces of as many keys."""
    if steps.splits is None or steps.tile is None:
        return tiles(keys, steps.piece if steps.splits is None else -(-keys // steps.splits))
    count = -(-keys // steps.tile)
    limits = [count * number // steps.splits * steps.tile for number in range(steps.splits + 1)]
    return [slice(low, min(high, keys)) for low, high in pairwise(limits) if low < high]


def _pivot(top: Tensor) -> tuple[Tensor, Tensor]:
    some = top != -torch.inf
    return top.masked_fill(~some, 0.0), some


def _walk(z: Tensor, v: Tensor, kept: Tensor | None, piece: slice, steps: Steps) -> _Running:
    """The online softmax over the keys of a piece."""
    top = z.new_full((*z.shape[:3], 1), -torch.inf)
    total, acc = torch.zeros_like(top), z.new_zeros(*z.shape[:3], v.shape[-1])
    finite = to_dtype("fp32")
    for keys in tiles(piece.stop - piece.start, steps.tile, piece.start):
        new = torch.maximum(top, z[..., keys].amax(-1, keepdim=True))
        if steps.rows is not None:
            new = _together(new, steps.rows)
        pivot = new.masked_fill(new == -torch.inf, 0.0)
        alpha = torch.where(top == -torch.inf, 0.0, (top - pivot).exp())
        weights = (steps.unit * steps.exponent((z[..., keys] - pivot) / steps.unit)).exp()
        if steps.rows is not None:
            weights = finite(weights)
        seen = weights if kept is None else steps.undropped(weights) * kept[..., keys]
        total = steps.row_sum(total * steps.alpha(alpha) + steps.summed(weights).sum(-1, keepdim=True))
        acc = steps.accumulator(acc * steps.alpha_of_o(alpha) + times("o", steps.p(seen), v[:, :, keys], steps))
        top = new
    return _Running(top, total, acc)


def _together(top: Tensor, rows: int) -> Tensor:
    """The largest maximum of each tile of rows, in the rows that see a key."""
    largest = torch.cat(
        [top[:, :, at].amax(2, keepdim=True).expand_as(top[:, :, at]) for at in tiles(top.shape[2], rows)], 2
    )
    return torch.where(top == -torch.inf, top, largest)


def _finished(pivot: Tensor, some: Tensor, total: Tensor, acc: Tensor, steps: Steps) -> tuple[Tensor, Tensor]:
    total = torch.where(some, total, 1.0)
    total = total.masked_fill(total == 0, torch.nan)
    acc, divisor = steps.undivided(acc), steps.divisor(total)
    o = acc / divisor if steps.reciprocal is None else acc * steps.reciprocal(1.0 / divisor)
    return o, pivot + total.log()


def _merged(pieces: list[_Running], steps: Steps, sink: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """O, LSE and the rows that see a key, of pieces that are divided each by its own row sum and then weighed."""
    parts, sums = [], []
    for top, total, acc in pieces:
        pivot, some = _pivot(top)
        o, lse = _finished(pivot, some, total, acc, steps)
        parts.append(steps.part_o(o))
        sums.append(torch.where(some, steps.part_lse(lse), -torch.inf))
    if sink is not None:
        sums.append(sink.expand_as(sums[0]).masked_fill(torch.stack(sums).amax(0) == -torch.inf, -torch.inf))
    stacked = torch.stack(sums)
    pivot, some = _pivot(stacked.amax(0))
    weights = (stacked - pivot).exp()
    total = torch.where(some, weights.sum(0), 1.0)
    shares = steps.part_weight(steps.part_exponent(stacked - pivot).exp() / total)
    o = sum(share * part for share, part in zip(shares, parts, strict=False))
    return torch.as_tensor(o), pivot + total.log(), some
