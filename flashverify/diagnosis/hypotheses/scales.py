"""Wrong scales of the logits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.hypothesis import Finish
    from flashverify.diagnosis.observation import Scene

__all__ = ["SCALES"]

_LOG2E = 1.0 / math.log(2.0)


def _scale(factor: Callable[[float, int], float]) -> Callable[[Scene], Iterator[Alternative]]:
    """The scale times a function of the scale and the head dimension: everywhere, or in the weights alone."""

    def build(scene: Scene) -> Iterator[Alternative]:
        scale, dim = scene.inputs.scale, scene.case.dim_qk
        wrong = factor(scale, dim)
        if wrong != scale and math.isfinite(wrong):
            yield Alternative(inputs=replace(scene.inputs, scale=wrong))
            if scene.inputs.do is not None and wrong:
                yield Alternative(inputs=replace(scene.inputs, scale=wrong), finish=_as_declared(scale / wrong))

    return build


def _as_declared(factor: float) -> Finish:
    """The scale by which dQ and dK are multiplied is the declared one."""
    return lambda found: {name: x.times(factor) if name in ("dq", "dk") else x for name, x in found.items()}


def _scale_off(scene: Scene) -> Iterator[Alternative]:
    for factor, text in (
        (1.001, "0.1 % too large"),
        (0.999, "0.1 % too small"),
        (1.01, "1 % too large"),
        (0.99, "1 % too small"),
    ):
        yield Alternative(inputs=replace(scene.inputs, scale=scene.inputs.scale * factor), detail=text)


SCALES = (
    Semantics(name="scale-missing", sentence="the logits are not scaled", build=_scale(lambda _s, _d: 1.0)),
    Semantics(name="scale-squared", sentence="the scale is applied twice", build=_scale(lambda s, _d: s * s)),
    Semantics(
        name="scale-default",
        sentence="the scale is 1 / sqrt(D) whatever is asked for",
        build=_scale(lambda _s, d: 1.0 / math.sqrt(d)),
    ),
    Semantics(name="scale-one-over-d", sentence="the scale is 1 / D", build=_scale(lambda _s, d: 1.0 / d)),
    Semantics(
        name="scale-one-over-sqrt-d-twice",
        sentence="the scale is divided by sqrt(D)",
        build=_scale(lambda s, d: s / math.sqrt(d)),
    ),
    Semantics(
        name="scale-without-sign", sentence="the scale is taken without its sign", build=_scale(lambda s, _d: abs(s))
    ),
    Semantics(name="scale-sign", sentence="the scale has the wrong sign", build=_scale(lambda s, _d: -s)),
    Semantics(name="scale-slightly-off", sentence="the scale is slightly wrong", build=_scale_off, one_way=True),
    Semantics(
        name="log2e-missing",
        sentence="the factor log2(e) of a base-2 exponential is missing: the logits count times ln 2",
        build=_scale(lambda s, _d: s / _LOG2E),
    ),
    Semantics(
        name="log2e-twice",
        sentence="the factor log2(e) is applied twice, or before a natural exponential",
        build=_scale(lambda s, _d: s * _LOG2E),
    ),
)
