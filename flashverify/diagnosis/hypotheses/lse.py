"""Wrong semantics of the LSE that is returned: its base, its parts."""

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

    Parts = Callable[[Scene, Tensor, Tensor], Iterator[tuple[Tensor, str]]]

__all__ = ["LSE"]

_LOG2E = 1.0 / math.log(2.0)
_BASES = ((_LOG2E, "in base 2"), (1.0 / _LOG2E, "taken for base 2 and multiplied by ln 2"))


def _of_parts(change: Parts) -> Callable[[Scene], Iterator[Alternative]]:
    """Another function of the largest logit and of the logarithm of the row sum, in the units of the LSE, in place of their sum.

    The backward of such a kernel reads the wrong LSE, or a right one that it keeps for itself.
    """

    def build(scene: Scene) -> Iterator[Alternative]:
        if not scene.case.seq_k or "lse" not in scene.right:
            return
        natural = scene.truth.forward()["lse"][0] * scene.unit
        top = logits(scene.inputs).amax(-1)
        tops = [top]
        if scene.inputs.sink is not None:
            tops.append(torch.maximum(top, scene.inputs.sink.double().view(1, -1, 1)))
        for top in tops:
            for value, detail in change(scene, top / scene.unit, (natural - top) / scene.unit):

                def finish(found: Expectations, value: Tensor = value) -> Expectations:
                    if "lse" not in found:
                        return found
                    lse = found["lse"]
                    kept = torch.where(torch.isfinite(value), value, lse.value)
                    return found | {"lse": replace(lse, value=kept, total=2.0 * lse.total, strict=None)}

                def given(o: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
                    return o, torch.where(torch.isfinite(natural), natural, lse)

                yield Alternative(finish=finish, detail=detail)
                yield Alternative(finish=finish, given=given, detail=detail)

    return build


def _mixed(_scene: Scene, top: Tensor, log_sum: Tensor) -> Iterator[tuple[Tensor, str]]:
    for factor, words in _BASES:
        yield top * factor + log_sum, f"the maximum {words}"
        yield top + log_sum * factor, f"the logarithm of the row sum {words}"
    yield top * _LOG2E + log_sum / _LOG2E, "each in the base of the other"
    yield top / _LOG2E + log_sum * _LOG2E, "each in the base of the other"


def _unscaled(scene: Scene, top: Tensor, log_sum: Tensor) -> Iterator[tuple[Tensor, str]]:
    i = scene.inputs
    if i.scale > 0 and i.scale != 1.0 and not i.biases and not i.softcap:
        yield top / i.scale + log_sum, ""


LSE = (
    Semantics(
        name="lse-mixed-bases",
        sentence="the LSE adds a maximum and a logarithm of the row sum in different bases",
        build=_of_parts(_mixed),
    ),
    Semantics(
        name="lse-without-maximum",
        sentence="the LSE is the logarithm of the row sum alone: the maximum is not added back",
        build=_of_parts(lambda _scene, _top, log_sum: iter([(log_sum, "")])),
    ),
    Semantics(
        name="lse-without-logarithm",
        sentence="the LSE adds the row sum itself to the maximum, not its logarithm",
        build=_of_parts(lambda scene, top, log_sum: iter([(top + (log_sum * scene.unit).exp(), "")])),
    ),
    Semantics(
        name="lse-maximum-unscaled",
        sentence="the LSE adds the largest product without its scale",
        build=_of_parts(_unscaled),
    ),
    Semantics(
        name="lse-sign",
        sentence="the LSE has the wrong sign",
        build=_of_parts(lambda _scene, top, log_sum: iter([(-top - log_sum, "")])),
    ),
)
