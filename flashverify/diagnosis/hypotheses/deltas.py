"""Wrong semantics of delta and of the gradient of the LSE: their factors, their rows, what they are summed from."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import TILES, Semantics
from flashverify.outputs import OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypotheses.step_builds import Changes
    from flashverify.diagnosis.observation import Scene

__all__ = ["DELTAS"]

_OUTPUTS = ("delta", *OF_DS, "dsink")

_PLACES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "next-head": ("the next head", lambda x: x.roll(-1, 1)),
    "first-head": ("the first head", lambda x: x[:, :1].expand_as(x)),
    "next-sequence": ("the next sequence", lambda x: x.roll(-1, 0)),
    "first-sequence": ("the first sequence", lambda x: x[:1].expand_as(x)),
    "next-row": ("the next row", lambda x: x.roll(-1, 2)),
    "previous-row": ("the row before", lambda x: x.roll(1, 2)),
    "first-row": ("the first row", lambda x: x[:, :, :1].expand_as(x)),
}


def _times(name: str, by: float, steps: Steps) -> Steps:
    if name == "dlse":
        return replace(steps, dlse=steps.dlse * by)
    return replace(steps, delta=steps.delta * by, delta_size=steps.delta_size * abs(by))


def _factors(name: str, *factors: Callable[[Scene], float]) -> Callable[[Scene], Changes]:
    """Delta or dLSE times a number, where the case has one."""

    def changes(scene: Scene) -> Changes:
        if name == "dlse" and scene.inputs.dlse is None:
            return
        for factor in factors:
            if (by := factor(scene)) != 1.0:
                yield "", partial(_times, name, by)

    return changes


def _scale(scene: Scene) -> float:
    return scene.inputs.scale


def _one_over_scale(scene: Scene) -> float:
    return 1.0 / scene.inputs.scale if scene.inputs.scale else 1.0


def _moved(name: str, place: Callable[[Tensor], Tensor]) -> Callable[[Scene], Changes]:
    def moved(steps: Steps) -> Steps:
        if name == "o":
            o = place(steps.o)
            return replace(steps, delta=(steps.do * o).sum(-1), delta_size=(steps.do * o).abs().sum(-1))
        if name == "delta":
            return replace(steps, delta=place(steps.delta), delta_size=place(steps.delta_size))
        return replace(steps, dlse=place(steps.dlse))

    def changes(scene: Scene) -> Changes:
        places = torch.arange(scene.case.batch * scene.case.heads_q * scene.case.seq_q).view(scene.case.shape_q[:3])
        if (name != "dlse" or scene.inputs.dlse is not None) and bool((place(places) != places).any()):
            yield "", moved

    return changes


def _of_channels(scene: Scene) -> Changes:
    """The sum over the channels of O ends early, or has the last chunk alone."""

    def part(low: int, high: int, steps: Steps) -> Steps:
        terms = (steps.do * steps.o)[..., low:high]
        return replace(steps, delta=terms.sum(-1), delta_size=terms.abs().sum(-1))

    dim = scene.case.dim_v
    for size in TILES:
        if size < dim:
            yield f"the first {size} of them", partial(part, 0, size)
            yield f"from {(dim - 1) // size * size} on", partial(part, (dim - 1) // size * size, dim)


def _not_weighted(_scene: Scene) -> Changes:
    """P dP - delta, of visible pairs or of all."""

    def unweighted(where: str, steps: Steps) -> Steps:
        row = (steps.dlse - steps.delta).unsqueeze(-1)
        found = steps.p * steps.dp + row
        return replace(steps, ds=found.where(steps.see, 0.0) if where == "visible" else found)

    yield "", partial(unweighted, "visible")
    yield "", partial(unweighted, "all")


def _without_dropout(scene: Scene) -> Changes:
    """The sum of P dP over all pairs, as if none were dropped."""

    def undropped(steps: Steps) -> Steps:
        dp = steps.do @ steps.v.mT
        return replace(steps, delta=(steps.p * dp).sum(-1), delta_size=(steps.p * dp.abs()).sum(-1))

    if scene.case.dropout:
        yield "", undropped


DELTAS = (
    Semantics(
        name="delta-twice",
        sentence="delta is subtracted twice",
        build=by_steps(_factors("delta", lambda _scene: 2.0)),
        outputs=_OUTPUTS,
    ),
    Semantics(
        name="delta-halved",
        sentence="half of delta is subtracted",
        build=by_steps(_factors("delta", lambda _scene: 0.5)),
        outputs=_OUTPUTS,
    ),
    Semantics(
        name="delta-scaled",
        sentence="delta is multiplied or divided by the scale and dP is not",
        build=by_steps(_factors("delta", _scale, _one_over_scale)),
        outputs=_OUTPUTS,
    ),
    Semantics(
        name="delta-averaged-over-channels",
        sentence="delta is the mean of dO * O over the channels, not the sum",
        build=by_steps(_factors("delta", lambda scene: 1.0 / scene.case.dim_v)),
        outputs=_OUTPUTS,
    ),
    Semantics(
        name="delta-of-some-channels",
        sentence="delta is summed over some of the channels only",
        build=by_steps(_of_channels),
        outputs=_OUTPUTS,
    ),
    Semantics(
        name="delta-not-weighted",
        sentence="the gradient of a logit is P dP - delta: delta is not multiplied by P",
        build=by_steps(_not_weighted),
        outputs=OF_DS,
    ),
    Semantics(
        name="delta-without-dropout",
        sentence="delta is that of attention without dropout",
        build=by_steps(_without_dropout),
        outputs=_OUTPUTS,
    ),
    *(
        Semantics(
            name=f"delta-of-{where}",
            sentence=f"delta is that of {words}",
            build=by_steps(_moved("delta", place)),
            outputs=_OUTPUTS,
        )
        for where, (words, place) in _PLACES.items()
        if where in ("previous-row", "first-row")
    ),
    *(
        Semantics(
            name=f"backward-o-of-{where}",
            sentence=f"the backward reads O of {words}: its delta is that of another O",
            build=by_steps(_moved("o", place)),
            outputs=_OUTPUTS,
        )
        for where, (words, place) in _PLACES.items()
    ),
    Semantics(
        name="dlse-twice",
        sentence="the gradient through the LSE is counted twice",
        build=by_steps(_factors("dlse", lambda _scene: 2.0)),
        outputs=_OUTPUTS,
    ),
    Semantics(
        name="dlse-scaled",
        sentence="the gradient through the LSE is multiplied or divided by the scale",
        build=by_steps(_factors("dlse", _scale, _one_over_scale)),
        outputs=_OUTPUTS,
    ),
    *(
        Semantics(
            name=f"dlse-of-{where}",
            sentence=f"the gradient of the LSE is read of {words}",
            build=by_steps(_moved("dlse", place)),
            outputs=_OUTPUTS,
        )
        for where, (words, place) in _PLACES.items()
    ),
)
