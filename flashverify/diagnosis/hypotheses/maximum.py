"""Wrong semantics of the running maximum, and of logits and exponents that are clamped."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["MAXIMUM"]

_LN2 = math.log(2.0)
_NORMAL, _LEAST = -126.0 * _LN2, -150.0 * _LN2
"""Natural logarithms of the smallest normal fp32 number, and of a number below the smallest subnormal one."""
_STARTS = (-1.0, -10.0, -20.0, -50.0, -100.0, -1e3, -1e4, -65504.0, -1e5, -1e6)
_LIMITS = (10.0, 20.0, 30.0, 50.0, 80.0, 88.0, 100.0, 500.0, 1e3, 1e4)


def _from(starts: tuple[float, ...]) -> Callable[[Scene], Iterator[Alternative]]:
    """Weights are exp(S - max(m, start)), with the start in natural units or in base 2."""

    def build(scene: Scene) -> Iterator[Alternative]:
        for start in starts:
            for unit, words in ((1.0, ""), (_LN2, " in base 2"))[: 1 + (start != 0.0)]:
                yield from _from_start(scene, start * unit, f"{start:g}{words}" if start else "")

    return build


def _from_start(scene: Scene, start: float, detail: str) -> Iterator[Alternative]:
    """Below 2^-126 weights are 0; a row of such weights comes out as 0, or as 0 / 0, with the start or -inf as LSE."""
    z = logits(scene.inputs) - start
    inputs = replace(scene.inputs, visible=z >= _NORMAL)
    gone = (z < _NORMAL).all(-1)  # rows that see no key are among them, unless the kernel cares for them
    some = torch.zeros_like(gone) if not z.shape[-1] else z.amax(-1) < -60.0
    # weights between the smallest normal number and the smallest subnormal one are rounded or flushed
    unsure = ((z < -80.0) & (z > _LEAST)).any(-1) & some
    ends = ((0.0, start), (0.0, -math.inf), (math.nan, -math.inf), (math.nan, start))
    cared = (gone, gone & ~scene.truth.empty_rows) if bool(scene.truth.empty_rows.any()) else (gone,)
    for vanished, (o, lse) in itertools.product(cared, ends):

        def finish(expected: Expectations, vanished: Tensor = vanished, o: float = o, lse: float = lse) -> Expectations:
            if "o" not in expected:
                return expected
            rows = vanished.unsqueeze(-1)
            lost = expected["o"].not_finite(rows) if math.isnan(o) else expected["o"].pinned(rows, o)
            return {
                "o": lost.open(unsure.unsqueeze(-1)),
                "lse": expected["lse"].pinned(vanished, lse / scene.unit).open(unsure),
            }

        yield Alternative(inputs=inputs, finish=finish, detail=detail)
        if not bool(gone.any()):
            return


def _changed(scene: Scene, z: Tensor, wanted: Iterable[tuple[Tensor, str]]) -> Iterator[Alternative]:
    """Other logits in place of `z` at visible pairs; nothing is wrong where some of them are the same. Nothing where all are."""
    biases = [(torch.where(torch.isfinite(z), changed - z, 0.0), detail) for changed, detail in wanted]
    acting = [(bias, detail) for bias, detail in biases if bool((bias != 0).any())]
    for bias, detail in acting:
        yield Alternative(inputs=replace(scene.inputs, biases=(*scene.inputs.biases, bias)), detail=detail)
    if acting and len(acting) < len(biases):
        yield Alternative()


def _clamped(scene: Scene) -> Iterator[Alternative]:
    if scene.case.seq_k:
        z = logits(scene.inputs)
        below = ((z.clamp(min=-limit), f"from below at {-limit:g}") for limit in _LIMITS)
        above = ((z.clamp(max=limit), f"from above at {limit:g}") for limit in _LIMITS)
        yield from _changed(scene, z, (*below, *above))


def _exponents(scene: Scene) -> Iterator[Alternative]:
    """The weights are exp(max(S - m, -limit)), of natural exponents or of base-2 ones."""
    if scene.case.seq_k:
        z = logits(scene.inputs)
        top = z.amax(-1, keepdim=True)
        units = ((1.0, ""), (_LN2, " in base 2"))
        wanted = (
            (torch.maximum(z, top - limit * unit), f"at {-limit:g}{words}")
            for limit in (4.0, 8.0, 10.0, 16.0, 20.0, 24.0, 32.0)
            for unit, words in units
        )
        yield from _changed(scene, z, wanted)


MAXIMUM = (
    Semantics(
        name="maximum-from-zero",
        sentence="the running maximum starts at 0: weights of very negative logits vanish",
        build=_from((0.0,)),
        outputs=FORWARD,
    ),
    Semantics(
        name="maximum-from-a-number",
        sentence="the running maximum starts at a finite number, or is clamped to one: weights of logits far below it vanish",
        build=_from(_STARTS),
        one_way=True,
        outputs=FORWARD,
    ),
    Semantics(name="logits-clamped", sentence="the logits are clamped", build=_clamped, outputs=FORWARD, one_way=True),
    Semantics(
        name="exponents-clamped",
        sentence="the exponents S - max S are clamped from below: small weights are too large",
        build=_exponents,
        one_way=True,
        outputs=FORWARD,
    ),
)
