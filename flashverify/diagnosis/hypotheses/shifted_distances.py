"""Wrong semantics of the diagonal from which ALiBi and a relative bias measure distances, in all of a kernel or in a gradient alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.case.modifiers.alibi import acting_slopes
from flashverify.diagnosis.hypotheses.alignment import buffer_shifts
from flashverify.diagnosis.hypotheses.terms import split_biases, with_biases
from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Shifts = Callable[[Scene], Iterator[tuple[Tensor, str]]]
    """Positions less row numbers, `[B, Sq]`, and their detail."""
    Build = Callable[[Scene], Iterator[Alternative]]

__all__ = ["SHIFTED_DISTANCES"]


def _other_sign(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    if bool((scene.at.shift != 0).any()):
        yield -scene.at.shift, ""


def _alibi(shifts: Shifts) -> Build:
    def build(scene: Scene) -> Iterator[Alternative]:
        bias, alibi = split_biases(scene)
        if alibi is None or scene.problem.slopes is None:
            return
        slope = acting_slopes(scene.problem.slopes).double().view(-1, 1, 1)
        for shift, detail in shifts(scene):
            term = -slope * _distance(scene, shift).unsqueeze(1).abs().double()
            yield Alternative(inputs=with_biases(scene, bias, term), detail=detail)

    return build


def _relative(shifts: Shifts, *, gradient_alone: bool = False) -> Build:
    """The table is read, and its gradient summed, at other distances; the latter alone if `gradient_alone`."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, table, of_distance = scene.inputs, scene.problem.relative_bias, scene.problem.distance_buckets
        if table is None or of_distance is None or (gradient_alone and i.do is None):
            return
        reach = len(of_distance) // 2
        for shift, detail in shifts(scene):
            buckets = of_distance.long()[_distance(scene, shift).clamp(-reach, reach) + reach].unsqueeze(1)
            biases = i.biases
            if not gradient_alone:
                biases = (*i.biases[:-1], table.double()[:, buckets[:, 0]].transpose(0, 1))
            yield Alternative(inputs=replace(i, biases=biases, relative_buckets=buckets), detail=detail)

    return build


def _distance(scene: Scene, shift: Tensor) -> Tensor:
    """Key - position, int64 `[B, Sq, Sk]`."""
    at = scene.at
    return at.key[:, None, :] - (at.row + shift)[:, :, None]


_OF_TABLE = ("drelative_bias",)

SHIFTED_DISTANCES = (
    Semantics(
        name="alibi-shift-sign",
        sentence="ALiBi measures distances from rows that are moved by queries minus keys, not by keys minus queries",
        build=_alibi(_other_sign),
    ),
    Semantics(
        name="relative-bias-shift-sign",
        sentence="the relative bias measures distances from rows that are moved by queries minus keys, not by keys minus queries",
        build=_relative(_other_sign),
    ),
    Semantics(
        name="relative-bias-of-the-buffers",
        sentence="the relative bias measures distances by the sizes of the buffers, not by the declared lengths",
        build=_relative(buffer_shifts),
    ),
    Semantics(
        name="drelative-bias-shift-sign",
        sentence="the gradient of the relative bias is summed at distances from rows that are moved by queries minus keys, not by keys minus queries",
        build=_relative(_other_sign, gradient_alone=True),
        outputs=_OF_TABLE,
    ),
    Semantics(
        name="drelative-bias-of-the-buffers",
        sentence="the gradient of the relative bias is summed at distances that are measured by the sizes of the buffers, not by the declared lengths",
        build=_relative(buffer_shifts, gradient_alone=True),
        outputs=_OF_TABLE,
    ),
)
