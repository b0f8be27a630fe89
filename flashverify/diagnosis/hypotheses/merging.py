"""Wrong semantics of the merge of partial results."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["MERGES", "partials", "pieces"]

_LOG2E = 1.0 / math.log(2.0)


def pieces(scene: Scene) -> list[Tensor]:
    """Per way in which the keys may be cut into the form's number of partials: the partial of each key, `[..., Sq, Sk]`."""
    n, keys, at = scene.form.n_splits, scene.case.seq_k, scene.at
    if n < 2 or keys < 1:
        return []
    j = torch.arange(keys).view(1, 1, 1, -1)
    limits = torch.tensor([keys * (s + 1) // n for s in range(n)])
    found = [torch.bucketize(j, limits, right=True)]
    size = scene.form.block_n
    if size is not None:
        count = -(-at.keys[:, None, :, None] // size)
        tile = at.key[:, None, None, :] // size
        piece = torch.zeros_like(tile * count)
        for s in range(1, n):
            piece += (tile >= count * s // n).long()
        found.append(piece)
        found += _of_what_is_seen(scene, size)
    return found


def _of_what_is_seen(scene: Scene, size: int) -> list[Tensor]:
    """The same of the whole tiles from the first to the last one in which a row of the sequence sees a key, where the mask hides others."""
    visible, n = scene.inputs.visible, scene.form.n_splits
    if visible is None or scene.case.mask.packed is not None:
        return []
    tile = torch.arange(scene.case.seq_k) // size
    seen = visible.expand(scene.case.batch, -1, -1, -1).any(1).any(1)
    first = torch.where(seen, tile, int(tile[-1]) + 1).amin(-1, keepdim=True)
    count = (torch.where(seen, tile, -1).amax(-1, keepdim=True) + 1 - first).clamp(min=0)
    whole = (first == 0) & (count == -(-scene.at.keys[:, :1] // size))
    if bool(whole.all()):
        return []
    piece = sum(((tile >= first + count * s // n).long() for s in range(1, n)), torch.zeros_like(tile))
    return [piece[:, None, None, :]]


def _piece_lse(scene: Scene, piece: Tensor) -> tuple[Tensor, Tensor]:
    """The natural LSE of every partial `[n, B, Hq, Sq]`, and that of the key's partial per pair."""
    z = logits(scene.inputs)
    piece = piece.expand(z.shape)
    every = torch.stack([z.masked_fill(piece != s, -torch.inf).logsumexp(-1) for s in range(scene.form.n_splits)])
    return every, every.movedim(0, -1).gather(-1, piece)


def partials(scene: Scene) -> Iterator[Tensor]:
    """Per way in which the keys may be cut: the natural LSE of every partial, `[n, B, Hq, Sq]`."""
    for piece in pieces(scene):
        yield _piece_lse(scene, piece)[0]


def _merge_base(scene: Scene) -> Iterator[Alternative]:
    for piece in pieces(scene):
        every, own = _piece_lse(scene, piece)
        bias = torch.where(torch.isfinite(own), (_LOG2E - 1.0) * own, 0.0)
        # the largest LSE is subtracted before and added after, in its own base; what is added to it may be brought to that base or not
        top = every.amax(0).nan_to_num(0.0, 0.0, 0.0) / scene.unit
        inputs = replace(scene.inputs, biases=(*scene.inputs.biases, bias))
        for unit in (1.0, 1.0 / _LOG2E):

            def finish(found: Expectations, top: Tensor = top, unit: float = unit) -> Expectations:
                if "lse" not in found:
                    return found
                more = found["lse"].value - _LOG2E * top
                return found | {"lse": replace(found["lse"], value=top + unit * more)}

            yield Alternative(inputs=inputs, finish=finish)


def _merge_not_normalised(scene: Scene) -> Iterator[Alternative]:
    for piece in pieces(scene):
        every, _ = _piece_lse(scene, piece)
        factor = (every.logsumexp(0) - every.amax(0)).nan_to_num(0.0, 0.0, 0.0).exp()

        def finish(found: Expectations, factor: Tensor = factor) -> Expectations:
            return found | ({"o": found["o"].times(factor.unsqueeze(-1))} if "o" in found else {})

        yield Alternative(finish=finish)


def _merge_correction(scene: Scene) -> Iterator[Alternative]:
    """The maximum + log2(sum exp(LSE - max)) of natural LSEs."""
    for every in partials(scene):
        top = every.amax(0)
        value = (top + _LOG2E * (every.logsumexp(0) - top)) / scene.unit

        def finish(found: Expectations, value: Tensor = value) -> Expectations:
            if "lse" not in found:
                return found
            kept = torch.where(torch.isfinite(value), value, found["lse"].value)
            return found | {"lse": replace(found["lse"], value=kept)}

        yield Alternative(finish=finish)


def _merge_without_maximum(scene: Scene) -> Iterator[Alternative]:
    """exp2 of an LSE itself: infinite from 2^128 on, then inf / inf; 0 below 2^-149, then no weight at all and an LSE of 0."""
    if scene.form.n_splits < 2:
        return
    for piece in pieces(scene):
        every, _ = _piece_lse(scene, piece)
        top = every.amax(0) * _LOG2E
        over = top > 127.99
        total = every.logsumexp(0) * _LOG2E
        over = over | (total > 127.99)
        under = top < -126.01
        unsure = ((total > 127.9) & (total < 128.1)) | ((top < -120.0) & (top > -150.0))

        def finish(
            found: Expectations, over: Tensor = over, under: Tensor = under, unsure: Tensor = unsure
        ) -> Expectations:
            if "o" not in found:
                return found
            o, lse = found["o"].pinned(under.unsqueeze(-1), 0.0), found["lse"]
            return {
                "o": o.not_finite((over & ~unsure).unsqueeze(-1)).open((over | unsure).unsqueeze(-1)),
                "lse": lse.not_finite(over & ~unsure).open(under | over | unsure),
            }

        yield Alternative(finish=finish)


MERGES = (
    Semantics(
        name="merge-in-wrong-base",
        sentence="partial results are merged by LSEs of the wrong base: the weights are those of base-2 LSEs taken as natural ones",
        build=_merge_base,
        outputs=FORWARD,
    ),
    Semantics(
        name="merge-lse-correction-in-base-2",
        sentence="merging natural LSEs adds log2 of the sum of their weights, where ln is meant",
        build=_merge_correction,
        outputs=("lse",),
    ),
    Semantics(
        name="merge-not-normalised",
        sentence="the weights of partial results are not divided by their sum",
        build=_merge_not_normalised,
        outputs=("o",),
    ),
    Semantics(
        name="merge-without-maximum",
        sentence="partial results are merged without subtracting the largest LSE: its exponential overflows or vanishes",
        build=_merge_without_maximum,
        outputs=FORWARD,
    ),
)
