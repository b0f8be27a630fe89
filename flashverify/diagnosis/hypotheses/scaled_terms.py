"""Wrong semantics of where the scale, the softcap and the additive terms of logits meet."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import products
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.observation import Scene

__all__ = ["SCALED_TERMS"]

_LN2 = math.log(2.0)


def _scaled(given: Callable[[Scene], int | None]) -> Callable[[Scene], Iterator[Alternative]]:
    """One of the additive terms, by its number in `Inputs.biases`, is multiplied by the scale as the products are."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, number = scene.inputs, given(scene)
        if number is None or i.scale == 1.0:
            return
        for factor, words in ((i.scale, ""), (1.0 / i.scale if i.scale else math.nan, "divided")):
            if math.isfinite(factor):
                biases = tuple(bias.double() * factor if n == number else bias for n, bias in enumerate(i.biases))
                yield Alternative(inputs=replace(i, biases=biases), detail=words)

    return build


def _bias(scene: Scene) -> int | None:
    return None if scene.problem.bias is None else 0


def _alibi(scene: Scene) -> int | None:
    return None if scene.problem.slopes is None else int(scene.problem.bias is not None)


def _cap_before_scale(scene: Scene) -> Iterator[Alternative]:
    """The logits are scale * cap * tanh(q k / cap)."""
    i, cap = scene.inputs, scene.inputs.softcap
    if not cap or i.scale in (0.0, 1.0):
        return
    x = products(i)
    wanted = i.scale * cap * torch.tanh(x / i.scale / cap)
    yield Alternative(inputs=replace(i, softcap=None, biases=(*i.biases, wanted - x)))


def _cap_in_base_2(scene: Scene) -> Iterator[Alternative]:
    """The cap of natural logits is applied to base-2 ones, or the other way round."""
    i = scene.inputs
    if i.softcap:
        yield Alternative(inputs=replace(i, softcap=i.softcap * _LN2), detail="a smaller cap")
        yield Alternative(inputs=replace(i, softcap=i.softcap / _LN2), detail="a larger cap")


def _dbias(factor: Callable[[Scene], float]) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        by = factor(scene)
        if scene.inputs.do is None or by == 1.0 or not math.isfinite(by):
            return

        def finish(found: Expectations) -> Expectations:
            return {name: x.times(by) if name in ("dbias", "drelative_bias") else x for name, x in found.items()}

        yield Alternative(finish=finish)

    return build


SCALED_TERMS = (
    Semantics(name="bias-scaled", sentence="the bias is multiplied by the scale of the products", build=_scaled(_bias)),
    Semantics(name="alibi-scaled", sentence="ALiBi is multiplied by the scale of the products", build=_scaled(_alibi)),
    Semantics(
        name="softcap-before-scale",
        sentence="the products are capped before they are scaled",
        build=_cap_before_scale,
        outputs=FORWARD,
    ),
    Semantics(
        name="softcap-in-another-base",
        sentence="the softcap is applied to logits in another base than its own",
        build=_cap_in_base_2,
    ),
    Semantics(
        name="bias-gradient-scaled",
        sentence="the gradient of the bias is multiplied by the scale of the products",
        build=_dbias(lambda scene: scene.inputs.scale),
        outputs=("dbias", "drelative_bias"),
    ),
    Semantics(
        name="bias-gradient-with-ln2",
        sentence="the gradient of the bias is multiplied by ln 2",
        build=_dbias(lambda _scene: _LN2),
        outputs=("dbias", "drelative_bias"),
    ),
    Semantics(
        name="bias-gradient-with-log2e",
        sentence="the gradient of the bias is multiplied by log2(e)",
        build=_dbias(lambda _scene: 1.0 / _LN2),
        outputs=("dbias", "drelative_bias"),
    ),
)
