"""Wrong semantics of the gradients of a sink and of shared biases."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.expected import Expected
from flashverify.diagnosis.hypotheses.step_builds import by_steps, has_gradients
from flashverify.diagnosis.hypothesis import TILES, Alternative, Expectations, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypotheses.step_builds import Changes
    from flashverify.diagnosis.observation import Scene

__all__ = ["SINK_GRADIENT"]

_LN2 = math.log(2.0)
_FEW_BITS = 2.0**-6
"""Share of the keys of a row below which 1 minus that of the sink is not known well."""


def _weight(change: Callable[[Steps, Tensor], Tensor], detail: str = "") -> Callable[[Scene], Changes]:
    """Another weight of the sink, a function of the steps and of the sinks `[1, Hq, 1]`."""

    def changes(scene: Scene) -> Changes:
        if scene.inputs.sink is not None:
            sink = scene.inputs.sink.double().view(1, -1, 1)
            yield detail, lambda s: replace(s, sink_weight=change(s, sink) * s.some)

    return changes


def _over_the_keys(steps: Steps, sink: Tensor) -> Tensor:
    """exp(sink) over the sum of the keys."""
    share = (sink - steps.lse).exp()
    return share / (1 - share).clamp(min=_FEW_BITS)


def _by_the_keys(scene: Scene) -> Iterator[Alternative]:
    """Nothing is asked of heads with a row whose keys weigh next to nothing: what is left of 1 there has few bits."""
    if scene.inputs.sink is None or scene.lse is None or not has_gradients(scene):
        return
    share = (scene.inputs.sink.double().view(1, -1, 1) - scene.lse).exp()
    alone = (share > 1.0 - _FEW_BITS).any(2).any(0)
    for each in by_steps(_weight(_over_the_keys))(scene):
        yield replace(each, finish=lambda found: {n: x.open(alone) if n == "dsink" else x for n, x in found.items()})


def _in_another_base(scene: Scene) -> Changes:
    for factor in (_LN2, 1.0 / _LN2):
        yield from _weight(lambda s, sink, by=factor: (sink * by - s.lse).exp())(scene)  # type: ignore[misc]


def _of_rows(scene: Scene) -> Changes:
    """Sums over some tiles of rows, with the detail that tells which."""
    row, end = scene.at.row[:, None], scene.at.rows[:, None]

    def part(kept: Tensor, s: Steps) -> Steps:
        assert s.sink_weight is not None
        return replace(s, sink_weight=s.sink_weight * kept)

    if scene.inputs.sink is None:
        return
    for size in TILES:
        if size >= 2 * scene.case.seq_q and size != TILES[0]:
            continue
        last = (end - 1).clamp(min=0) // size * size
        yield f"of the first tile of {size}", partial(part, row < size)
        yield f"of the last tile of {size}", partial(part, row >= last)
        yield f"before the last tile of {size}", partial(part, row < last)
        yield f"of whole tiles of {size}", partial(part, row < end // size * size)


def _last_sequence(scene: Scene) -> Changes:
    last = torch.arange(scene.case.batch).view(-1, 1, 1) == scene.case.batch - 1
    if scene.inputs.sink is not None and scene.case.batch > 1:
        yield "", lambda s: replace(s, sink_weight=s.sink_weight * last)


def _finished(change: Callable[[Tensor], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """The gradient of the sink, `[Hq]`, moved."""

    def finish(found: Expectations) -> Expectations:
        if "dsink" not in found:
            return found
        x = found["dsink"]
        moved = Expected(value=change(x.value), total=change(x.total), overflow=change(x.overflow.double()) > 0)
        return found | {"dsink": moved}

    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.inputs.sink is not None and has_gradients(scene) and scene.case.heads_q > 1:
            yield Alternative(finish=finish)

    return build


def _factors(scene: Scene) -> Iterator[Alternative]:
    for by in (_LN2, 1.0 / _LN2, scene.inputs.scale) if scene.inputs.sink is not None and has_gradients(scene) else ():
        if by != 1.0:
            yield Alternative(finish=partial(_times, "dsink", by))


def _times(name: str, by: float, found: Expectations) -> Expectations:
    return {n: x.times(by) if n == name else x for n, x in found.items()}


def _mean(scene: Scene) -> Iterator[Alternative]:
    """The gradient of a shared bias over the number of heads and sequences that share it, or over one of the two."""
    shape, case = scene.inputs.bias_shape, scene.case
    if shape is None or not has_gradients(scene):
        return
    sizes = {n for axis, n in enumerate((case.batch, case.heads_q)) if shape[axis] == 1}
    sizes |= {math.prod(n for axis, n in enumerate((case.batch, case.heads_q)) if shape[axis] == 1)}
    for size in sorted(sizes - {1}):
        yield Alternative(finish=partial(_times, "dbias", 1.0 / size))


def _of_one_axis(scene: Scene) -> Iterator[Alternative]:
    """A bias that heads and sequences share gets the gradient of one head of all sequences, or of one sequence's heads."""
    i, case = scene.inputs, scene.case
    if i.bias_shape is None or not has_gradients(scene) or i.bias_shape[:2] != (1, 1):
        return
    sizes = (case.batch, case.heads_q)
    for axis in (0, 1) if min(sizes) > 1 else ():
        for which in (0, sizes[axis] - 1):
            kept = torch.zeros(sizes[axis]).double().index_fill(0, torch.tensor(which), 1.0)
            kept = kept.view((-1, 1, 1, 1) if axis == 0 else (1, -1, 1, 1))
            yield Alternative(steps=partial(_masked, kept), detail=f"one of {('sequences', 'heads')[axis]}")


def _masked(kept: Tensor, s: Steps) -> Steps:
    return replace(s, dbias_ds=s.formula() * kept)


SINK_GRADIENT = (
    Semantics(
        name="dsink-by-lse-of-keys",
        sentence="the weight of the sink in its gradient is relative to the LSE of the keys alone, without the sink",
        build=_by_the_keys,
        outputs=("dsink",),
    ),
    Semantics(
        name="dsink-without-weight",
        sentence="the gradient of the sink lacks the weight of the sink",
        build=by_steps(_weight(lambda s, _sink: torch.ones_like(s.lse))),
        outputs=("dsink",),
    ),
    Semantics(
        name="dsink-weight-in-another-base",
        sentence="the weight in the gradient of the sink is that of a sink in another base",
        build=by_steps(_in_another_base),
        outputs=("dsink",),
    ),
    Semantics(
        name="dsink-times-a-factor",
        sentence="the gradient of the sink is multiplied by the scale, by ln 2 or by log2(e)",
        build=_factors,
        outputs=("dsink",),
    ),
    Semantics(
        name="dsink-last-sequence",
        sentence="the gradient of the sink is that of the last sequence of the batch",
        build=by_steps(_last_sequence),
        outputs=("dsink",),
    ),
    Semantics(
        name="dsink-of-some-rows",
        sentence="the gradient of the sink is summed over some of the tiles of rows",
        build=by_steps(_of_rows),
        outputs=("dsink",),
    ),
    Semantics(
        name="dsink-of-next-head",
        sentence="the gradient of the sink is that of the next head",
        build=_finished(lambda x: x.roll(-1)),
        outputs=("dsink",),
    ),
    Semantics(
        name="dbias-mean",
        sentence="the gradient of a shared bias is the mean over heads or sequences, not the sum",
        build=_mean,
        outputs=("dbias",),
    ),
    Semantics(
        name="dbias-summed-over-one-axis",
        sentence="the gradient of a bias that heads and sequences share is summed over one of the two",
        build=_of_one_axis,
        outputs=("dbias",),
    ),
)
