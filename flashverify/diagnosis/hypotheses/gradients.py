"""Wrong semantics of the gradients themselves: factors, masks and operands; they follow from the subject's own O and LSE."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import visited_tiles
from flashverify.outputs import OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.observation import Scene

__all__ = ["GRADIENTS"]

_LOG2E = 1.0 / math.log(2.0)


def _times(names: tuple[str, ...], factor: Callable[[Scene], float]) -> Callable[[Scene], Iterator[Alternative]]:
    """Some gradients times a number."""

    def build(scene: Scene) -> Iterator[Alternative]:
        by = factor(scene)
        if scene.inputs.do is None or by == 1.0 or not math.isfinite(by):
            return

        def finish(found: Expectations) -> Expectations:
            return {name: x.times(by) if name in names else x for name, x in found.items()}

        yield Alternative(finish=finish)

    return build


def _unscaled(scene: Scene) -> float:
    return 1.0 / scene.inputs.scale if scene.inputs.scale else math.inf


def _unmasked(scene: Scene) -> Iterator[Alternative]:
    """The weights of invisible pairs are exp(S - LSE) too, of all pairs or of those in tiles that are visited."""
    i = scene.inputs
    if i.do is None or i.visible is None:
        return
    whole = torch.ones_like(i.visible)
    yield Alternative(inputs=replace(i, visible=whole), detail="in every tile")
    for pairs, detail in visited_tiles(scene):
        yield Alternative(inputs=replace(i, visible=pairs), detail=detail)


GRADIENTS = (
    Semantics(
        name="gradient-without-scale",
        sentence="the scale is missing in the gradient",
        build=_times(("dq", "dk"), _unscaled),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="gradient-scaled-twice",
        sentence="the scale is applied twice to the gradient",
        build=_times(("dq", "dk"), lambda scene: scene.inputs.scale),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="gradient-with-log2e",
        sentence="the factor log2(e) of the forward is left in the gradient",
        build=_times(("dq", "dk"), lambda _scene: _LOG2E),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="gradient-with-ln2",
        sentence="the gradient is multiplied by ln 2",
        build=_times(("dq", "dk"), lambda _scene: 1.0 / _LOG2E),
        outputs=("dq", "dk"),
    ),
    Semantics(
        name="gradient-twice",
        sentence="the gradient is counted twice",
        build=_times((*OF_DS, "dv", "dsink"), lambda _scene: 2.0),
        outputs=(*OF_DS, "dv", "dsink"),
    ),
    Semantics(
        name="gradient-sign",
        sentence="the gradient has the wrong sign",
        build=_times((*OF_DS, "dv"), lambda _scene: -1.0),
        outputs=(*OF_DS, "dv"),
    ),
    Semantics(
        name="weights-unmasked",
        sentence="the backward recomputes weights for pairs that the mask hides",
        build=_unmasked,
        outputs=(*OF_DS, "dv"),
    ),
)
