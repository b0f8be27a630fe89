"""Wrong semantics of what the backward reads of each row: delta, the LSE and its gradient."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.outputs import OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["STATISTICS"]

_LOG2E = 1.0 / math.log(2.0)


def _delta(change: Callable[[Tensor], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """Another number in place of delta = rowsum(dO * O), which may be stored too."""
    return by_steps(lambda _scene: [("", lambda s: replace(s, delta=change(s.delta)))])


def _next_row(delta: Tensor) -> Tensor:
    return torch.cat([delta[:, :, 1:], torch.zeros_like(delta[:, :, :1])], 2)


def _dlse(factor: float) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.inputs.dlse is not None and scene.inputs.do is not None:
            yield Alternative(inputs=replace(scene.inputs, dlse=scene.inputs.dlse * factor))

    return build


def _lse(change: Callable[[Tensor], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.inputs.do is None or scene.lse is None:
            return

        def given(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
            changed = change(lse)
            return o, torch.where(torch.isfinite(changed), changed, lse)

        yield Alternative(given=given)

    return build


STATISTICS = (
    Semantics(
        name="delta-missing",
        sentence="the gradient of the logits lacks delta = rowsum(dO * O)",
        build=_delta(torch.zeros_like),
        outputs=("delta", *OF_DS, "dsink"),
    ),
    Semantics(
        name="delta-sign",
        sentence="delta is added instead of subtracted",
        build=_delta(torch.neg),
        outputs=("delta", *OF_DS, "dsink"),
    ),
    Semantics(
        name="delta-of-next-row",
        sentence="delta is that of the next row",
        build=_delta(_next_row),
        outputs=("delta", *OF_DS, "dsink"),
    ),
    Semantics(
        name="dlse-ignored",
        sentence="the gradient through the LSE is ignored",
        build=_dlse(0.0),
        outputs=("delta", *OF_DS),
    ),
    Semantics(
        name="dlse-sign",
        sentence="the gradient through the LSE has the wrong sign",
        build=_dlse(-1.0),
        outputs=("delta", *OF_DS, "dsink"),
    ),
    Semantics(
        name="dlse-in-base-2",
        sentence="the gradient through the LSE is taken for that of a base-2 one",
        build=_dlse(_LOG2E),
        outputs=("delta", *OF_DS, "dsink"),
    ),
    Semantics(
        name="backward-lse-of-next-row",
        sentence="the backward reads the LSE of the next row",
        build=_lse(lambda lse: lse.roll(-1, 2)),
        outputs=(*OF_DS, "dv", "dsink"),
    ),
    Semantics(
        name="backward-lse-of-next-head",
        sentence="the backward reads the LSE of the next head",
        build=_lse(lambda lse: lse.roll(-1, 1)),
        outputs=(*OF_DS, "dv", "dsink"),
    ),
    Semantics(
        name="backward-lse-base",
        sentence="the backward takes a natural LSE for one of base 2",
        build=_lse(lambda lse: lse / _LOG2E),
        outputs=(*OF_DS, "dv", "dsink"),
    ),
)
