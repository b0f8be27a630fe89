"""The gradient of the sinks: other weights of the sink, or rows that count though they see no key."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.moves import moved, row_moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

    Change = Callable[[Scene, Steps], Steps | None]

__all__ = ["SinkFormula", "sink_formulas"]

_WITHIN = 4.0
"""Times its bound, in the measure of its magnitudes, that dsink may be off at first sight."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SinkFormula:
    """Another weight of the sink.

    Attributes:
        how: in words, after `In dsink`.
        change: of the steps; None where the case has not what it is about.
    """

    how: str
    change: Change

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of dsink on a case."""
        if scene.inputs.do is None or scene.inputs.sink is None or not scene.case.seq_q or not scene.case.seq_k:
            return None
        return Alternative(steps=lambda s: self.change(scene, s) or s)

    def words(self, _dlse: bool) -> str:
        """A sentence without its full stop."""
        return f"in dsink {self.how}"


def sink_formulas(scene: Scene, output: str, left: Callable[[], bool]) -> Iterator[SinkFormula]:
    """Formulas that give dsink on a case; none for another output.

    Args:
        scene: where it is wrong.
        output: an output.
        left: whether there is time.
    """
    if output != "dsink" or scene.o is None or scene.lse is None or scene.inputs.sink is None:
        return
    s, right, got = steps_of(scene.inputs, scene.o, scene.lse), scene.right[output], scene.outputs[output]
    for how, change in _changes(scene):
        if not left():
            return
        found = change(scene, s)
        if found is None or found.sink_weight is None:
            continue
        value = (found.sink_weight * (found.dlse - found.delta)).sum((0, 2))
        larger = (_size(found) / _size(s)).nan_to_num(1.0, 1.0, 1.0).clamp(min=1.0)
        asked = torch.isfinite(value) & torch.isfinite(got)  # sinks of hundreds overflow with the LSE of others
        near = (got - value).abs() <= _WITHIN * larger * right.total
        if bool(near[asked].all()) and bool((asked & scene.failures["dsink"]).any()):
            yield SinkFormula(how=how, change=change)


def _size(s: Steps) -> Tensor:
    """The sum of magnitudes that dsink is made of, `[Hq]`."""
    assert s.sink_weight is not None
    return (s.sink_weight * (s.delta_size + s.dlse.abs())).sum((0, 2))


def _changes(scene: Scene) -> Iterator[tuple[str, Change]]:
    yield "rows that see no key count, with the weight exp(sink)", _empty_rows
    yield (
        "the weight of the sink is exp(sink), not normalised",
        partial(_weight, lambda _scene, sink, lse: sink - 0 * lse),
    )
    yield "the weight of the sink is exp(sink - the largest logit)", partial(_weight, _largest)
    yield "the weight of the sink is exp(sink - an LSE without the sink)", partial(_weight, _without_sink)
    yield (
        "the weight of the sink is exp(log2(e) times (sink - LSE)): a base-2 number is taken for a natural one",
        partial(_weight, lambda _scene, sink, lse: (sink - lse) / math.log(2.0)),
    )
    yield (
        "the weight of the sink is 2 to the power of sink - LSE",
        partial(_weight, lambda _scene, sink, lse: (sink - lse) * math.log(2.0)),
    )
    yield (
        "the weight of the sink takes ln 2 times the LSE",
        partial(_weight, lambda _scene, sink, lse: sink - lse * math.log(2.0)),
    )
    yield (
        "the weight of the sink takes log2(e) times the LSE",
        partial(_weight, lambda _scene, sink, lse: sink - lse / math.log(2.0)),
    )
    for words in row_moves(scene):
        yield f"the weight of the sink takes the LSE of {words}", partial(_elsewhere, words, False)
        if "head" in words and "row" not in words:
            yield f"the weight of the sink takes the sink of {words}", partial(_elsewhere, words, True)


def _weight(exponent: Callable[[Scene, Tensor, Tensor], Tensor], scene: Scene, s: Steps) -> Steps:
    assert scene.inputs.sink is not None
    sink = scene.inputs.sink.double().view(1, -1, 1)
    return replace(s, sink_weight=exponent(scene, sink, s.lse).exp() * s.some)


def _largest(scene: Scene, sink: Tensor, lse: Tensor) -> Tensor:
    steps = steps_of(scene.inputs, scene.o, lse)  # type: ignore[arg-type]
    return torch.where(steps.some, sink - steps.z.amax(-1), 0.0)


def _without_sink(_scene: Scene, sink: Tensor, lse: Tensor) -> Tensor:
    rest = (lse.exp() - sink.exp()).clamp(min=1e-300)
    return sink - rest.log()


def _empty_rows(scene: Scene, s: Steps) -> Steps | None:
    """Their LSE is taken for 0 and their O is 0, so that dLSE alone counts."""
    if scene.inputs.dlse is None or scene.inputs.sink is None or s.sink_weight is None:
        return None
    inside = (scene.at.row < scene.at.rows)[:, None, :].expand(s.some.shape)
    empty = inside & ~s.some
    weight = torch.where(empty, scene.inputs.sink.double().view(1, -1, 1).exp(), s.sink_weight)
    return replace(s, sink_weight=weight, dlse=torch.where(empty, scene.inputs.dlse.double(), s.dlse))


def _elsewhere(words: str, of_sink: bool, scene: Scene, s: Steps) -> Steps | None:
    move = row_moves(scene).get(words)
    if move is None or scene.inputs.sink is None:
        return None
    sink = scene.inputs.sink.double().view(1, -1, 1).expand(s.lse.shape)
    lse = s.lse.masked_fill(~s.some, torch.inf)
    if of_sink:
        sink = moved(sink.contiguous(), move)
    else:
        lse = moved(lse, move).masked_fill(move.number < 0, torch.inf)
    return replace(s, sink_weight=(sink - lse).exp() * s.some)
