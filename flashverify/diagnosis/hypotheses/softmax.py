"""Wrong semantics of the online softmax and of the LSE that it returns."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["SOFTMAX"]

_LOG2E = 1.0 / math.log(2.0)


def _lse_times(factor: float, base: str) -> Callable[[Scene], Iterator[Alternative]]:
    """The LSE that is returned is in another base than `base`, which is declared: a backward that is wrong beside a right one is none of that."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.form.lse_base != base or (scene.failures and "lse" in scene.outputs and "lse" not in scene.failures):
            return

        def finish(found: Expectations) -> Expectations:
            return found | ({"lse": found["lse"].times(factor)} if "lse" in found else {})

        def given(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
            return o, lse / factor  # the backward of a kernel reads its own, which is right

        yield Alternative(finish=finish, given=given)

    return build


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
        name="not-normalised",
        sentence="O is not divided by the row sum",
        build=_not_normalised,
        outputs=("o",),
    ),
)
