"""Wrong semantics of whose sink is read, of its size, and of how often it counts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["SINK_PLACES"]

_LOG2E = 1.0 / math.log(2.0)
_FAINT, _GONE = 60.0, 110.0
"""By how much a sink exceeds the logits of a row whose weights beside it have few bits, or are 0 in fp32."""
_ROUNDING = 2.0**-21
"""Of a pivot in fp32, relative."""


def _sinks(change: Callable[[Scene, Tensor], Iterator[tuple[Tensor, str]]]) -> Callable[[Scene], Iterator[Alternative]]:
    """Other sinks, a function of the declared ones `[Hq]`."""

    def build(scene: Scene) -> Iterator[Alternative]:
        sink = scene.inputs.sink
        if sink is not None:
            for changed, detail in change(scene, sink.double()):
                if not torch.equal(changed, sink.double()):
                    yield Alternative(inputs=replace(scene.inputs, sink=changed), detail=detail)

    return build


def _counted(scene: Scene, sink: Tensor) -> tuple[int, ...]:
    """How often the sink is in a wrong LSE, where that is a whole number."""
    wrong = scene.failures.get("lse")
    if wrong is None:
        return ()
    got, right = (x * scene.unit for x in (scene.outputs["lse"], scene.right["lse"].value))
    times = 1 + ((got - sink.view(1, -1, 1)).exp() - (right - sink.view(1, -1, 1)).exp())[wrong]
    times = times[torch.isfinite(times) & ((times - times.round()).abs() < 1e-3)]
    return (int(times.median().round()),) if len(times) and 1.5 < float(times.median()) < 1e4 else ()


def _several_times(scene: Scene, sink: Tensor) -> Iterator[tuple[Tensor, str]]:
    for times in dict.fromkeys((scene.form.n_splits, 2, 3, 4, 8, *_counted(scene, sink))):
        if times > 1:
            yield sink + math.log(times), f"{times} times"


def _in_the_maximum(scene: Scene) -> Iterator[Alternative]:
    """No sink in the row sum, which is relative to a maximum that takes it in: an LSE with the rounding of that, and weights that vanish."""
    sink = scene.inputs.sink
    alone = (
        scene.failures and "o" in scene.outputs and "o" not in scene.failures
    )  # O and the LSE are made of one row sum
    if sink is None or not scene.case.seq_k or alone:
        return
    pivot = sink.double().view(1, -1, 1)
    above = pivot - logits(scene.inputs).amax(-1)
    seen = torch.isfinite(above)
    gone, unsure = seen & (above > _GONE), seen & (above > _FAINT) & (above <= _GONE)

    def finish(found: Expectations) -> Expectations:
        changed = {}
        if "o" in found:
            o = found["o"].pinned(gone.unsqueeze(-1), 0.0)
            changed["o"] = o.maybe_lost(gone.unsqueeze(-1)).open(unsure.unsqueeze(-1))
        if "lse" in found:
            more = found["lse"].total + _ROUNDING * pivot.abs() / scene.unit
            changed["lse"] = replace(found["lse"], total=more).open(gone | unsure)
        return found | changed

    yield Alternative(inputs=replace(scene.inputs, sink=None), finish=finish)


SINK_PLACES = (
    Semantics(
        name="sink-in-the-maximum-alone",
        sentence="the sink counts in the running maximum, not in the row sum",
        build=_in_the_maximum,
        outputs=FORWARD,
    ),
    Semantics(
        name="sink-of-next-head",
        sentence="a head gets the sink of the next one",
        build=_sinks(lambda _s, sink: iter([(sink.roll(-1), "")])),
    ),
    Semantics(
        name="sink-of-first-member",
        sentence="the heads of a group get the sink of their first one",
        build=_sinks(lambda scene, sink: iter([(sink[torch.arange(len(sink)) // scene.group * scene.group], "")])),
    ),
    Semantics(
        name="sink-several-times",
        sentence="the sink counts several times, as where each split of the keys adds it",
        build=_sinks(_several_times),
        one_way=True,
    ),
    Semantics(
        name="sink-scaled",
        sentence="the sink is multiplied by the scale of the products",
        build=_sinks(lambda scene, sink: iter([(sink * scene.inputs.scale, "")])),
    ),
    Semantics(
        name="sink-with-log2e",
        sentence="the sink is multiplied by log2(e) once too often",
        build=_sinks(lambda _s, sink: iter([(sink * _LOG2E, "")])),
    ),
    Semantics(
        name="sink-sign", sentence="the sink has the wrong sign", build=_sinks(lambda _s, sink: iter([(-sink, "")]))
    ),
)
