"""Wrong semantics of the online softmax and of the LSE that it returns."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import tiles
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["SOFTMAX"]

_LOG2E = 1.0 / math.log(2.0)


def _lse_times(factor: float, base: str) -> Callable[[Scene], Iterator[Alternative]]:
    """The LSE that is returned is in another base than `base`, which is declared."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.form.lse_base != base:
            return

        def finish(found: Expectations) -> Expectations:
            return found | ({"lse": found["lse"].times(factor)} if "lse" in found else {})

        def given(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
            return o, lse / factor  # the backward of a kernel reads its own, which is right

        yield Alternative(finish=finish, given=given)

    return build


def _running(scene: Scene, size: int) -> tuple[Tensor, Tensor]:
    """Per pair the running maximum at the end of the key's tile, and per row the last one, `[B, Hq, Sq, Sk]` and `[..., 1]`."""
    z = logits(scene.inputs)
    tile = (scene.at.key // size)[:, None, None, :]
    running = torch.full_like(z, -torch.inf)
    top = torch.full_like(z[..., :1], -torch.inf)
    for number in range(int(tile.max()) + 1):
        top = torch.maximum(top, z.masked_fill(tile != number, -torch.inf).amax(-1, keepdim=True))
        running = torch.where(tile == number, top, running)
    return running, top


def _behind(scene: Scene, size: int) -> Tensor | None:
    """By how much the running maximum still grows after a key's tile, natural units; None where it never does."""
    if scene.case.seq_k > 512 or not scene.case.seq_k:
        return None
    running, last = _running(scene, size)
    grown = torch.where(torch.isfinite(running), last - running, 0.0)
    return grown if bool((grown > 0).any()) else None


def _right(scene: Scene, size: int) -> Iterator[Alternative]:
    """Nothing is wrong where the maximum does not grow behind the first tile of the form."""
    if size == scene.form.block_n:
        yield Alternative(detail=f"a tile of {size} keys")


def _alpha(scene: Scene) -> Iterator[Alternative]:
    for size in tiles(scene):
        bias = _behind(scene, size)
        if bias is None:
            yield from _right(scene, size)
            continue
        declared = scene.right.get("lse")
        if declared is None:
            return
        natural = scene.truth.forward()["lse"][0] * scene.unit

        def finish(found: Expectations, natural: Tensor = natural) -> Expectations:
            if "o" not in found:
                return found
            row = (found["lse"].value * scene.unit - natural).nan_to_num(0.0, 0.0, 0.0)
            return {"o": found["o"].times(row.exp().unsqueeze(-1)), "lse": scene.right["lse"]}

        inputs = replace(scene.inputs, biases=(*scene.inputs.biases, bias))
        yield Alternative(inputs=inputs, finish=finish, detail=f"a tile of {size} keys")


def _row_sum(scene: Scene) -> Iterator[Alternative]:
    for size in tiles(scene):
        bias = _behind(scene, size)
        if bias is None:
            yield from _right(scene, size)
            continue
        natural = scene.truth.forward()["lse"][0] * scene.unit

        def finish(found: Expectations, natural: Tensor = natural) -> Expectations:
            if "o" not in found:
                return found
            row = (natural - found["lse"].value * scene.unit).nan_to_num(0.0, 0.0, 0.0)
            return {"o": scene.right["o"].times(row.exp().unsqueeze(-1)), "lse": found["lse"]}

        inputs = replace(scene.inputs, biases=(*scene.inputs.biases, bias))
        yield Alternative(inputs=inputs, finish=finish, detail=f"a tile of {size} keys")


def _not_normalised(scene: Scene) -> Iterator[Alternative]:
    natural = scene.truth.forward()["lse"][0] * scene.unit
    top = logits(scene.inputs).amax(-1) if scene.case.seq_k else natural
    if scene.inputs.sink is not None:
        top = torch.maximum(top, scene.inputs.sink.double().view(1, -1, 1))
    total = (natural - top).nan_to_num(0.0, 0.0, 0.0).exp()

    def finish(found: Expectations) -> Expectations:
        return found | ({"o": found["o"].times(total.unsqueeze(-1))} if "o" in found else {})

    yield Alternative(finish=finish)


def _lse_is_max(scene: Scene) -> Iterator[Alternative]:
    if not scene.case.seq_k or "lse" not in scene.right:
        return
    top = logits(scene.inputs).amax(-1) / scene.unit

    def finish(found: Expectations) -> Expectations:
        if "lse" not in found:
            return found
        value = torch.where(torch.isfinite(top), top, found["lse"].value)
        return found | {"lse": replace(found["lse"], value=value)}

    yield Alternative(finish=finish)


def _from_zero(scene: Scene) -> Iterator[Alternative]:
    """Weights are exp(S) where every logit is negative: below 2^-126 they are 0, and rows of such weights come out as 0 with LSE 0."""
    z = logits(scene.inputs)
    limit = -126.0 * math.log(2.0)
    inputs = replace(scene.inputs, visible=z >= limit)
    vanished = (z < limit).all(-1)
    # weights between the smallest normal number and the smallest subnormal one are rounded or flushed
    unsure = ((z < -80.0) & (z > -104.0)).any(-1) & (z.amax(-1) < -60.0) if z.shape[-1] else vanished

    def finish(expected: Expectations) -> Expectations:
        if "o" not in expected:
            return expected
        return {
            "o": expected["o"].pinned(vanished.unsqueeze(-1), 0.0).open(unsure.unsqueeze(-1)),
            "lse": expected["lse"].pinned(vanished, 0.0).open(unsure),
        }

    yield Alternative(inputs=inputs, finish=finish)


SOFTMAX = (
    Semantics(
        name="lse-base-2",
        sentence="the LSE is returned in base 2, where the natural one is declared",
        build=_lse_times(_LOG2E, "e"),
    ),
    Semantics(
        name="lse-natural",
        sentence="the LSE is returned in natural units, where base 2 is declared",
        build=_lse_times(1.0 / _LOG2E, "2"),
    ),
    Semantics(name="lse-is-max", sentence="the LSE is the largest logit alone", build=_lse_is_max, outputs=("lse",)),
    Semantics(
        name="alpha-not-applied",
        sentence="the accumulator is not rescaled when the running maximum grows",
        build=_alpha,
        outputs=("o",),
    ),
    Semantics(
        name="row-sum-not-rescaled",
        sentence="the row sum is not rescaled when the running maximum grows",
        build=_row_sum,
        outputs=FORWARD,
    ),
    Semantics(
        name="not-normalised",
        sentence="O is not divided by the row sum",
        build=_not_normalised,
        outputs=("o",),
    ),
    Semantics(
        name="maximum-from-zero",
        sentence="the running maximum starts at 0: weights of very negative logits vanish",
        build=_from_zero,
        outputs=FORWARD,
    ),
)
