"""Wrong semantics of the gradient of a relative position bias, which sums over the pairs of each bucket."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypotheses.step_builds import by_steps
from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.hypotheses.step_builds import Changes
    from flashverify.diagnosis.observation import Scene

    Build = Callable[[Scene], Iterator[Alternative]]

__all__ = ["RELATIVE_GRADIENT"]


def _one_sequence(which: int) -> Build:
    """The gradient of the table sums over the pairs of one sequence only."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, sequence = scene.inputs, scene.at.row_sequence
        if i.bucket_count is None or i.do is None or not sequence.numel() or not bool(sequence.any()):
            return
        other = (sequence != (0 if which == 0 else int(sequence.max())))[:, None]
        dlse = None if i.dlse is None else i.dlse.masked_fill(other, 0.0)
        yield Alternative(inputs=replace(i, do=i.do.masked_fill(other.unsqueeze(-1), 0.0), dlse=dlse))
        yield from by_steps(partial(_near_pairs, other))(scene)

    return build


def _near_pairs(other: Tensor, scene: Scene) -> Changes:
    """Of the sequences `other`, bool `[B, 1, Sq]`, the pairs whose distance is clipped count all the same."""
    buckets, at = scene.problem.distance_buckets, scene.at
    if buckets is not None:
        reach = min(len(buckets) // 2, max(scene.case.seq_q, scene.case.seq_k))
        distance = at.key[:, None, :] - (at.row + at.shift)[:, :, None]
        lost = other.unsqueeze(-1) & (distance.abs() < reach)[:, None]
        yield "of pairs within the reach of the table", partial(_without, lost)


def _without(lost: Tensor, steps: Steps) -> Steps:
    return replace(steps, dbias_ds=steps.formula().masked_fill(lost, 0.0))


def _summed_by_distance(scene: Scene) -> Iterator[Alternative]:
    """The gradient of the table adds pairs that are farther apart than there are rows, or keys, to the bucket of that distance."""
    i, buckets, at = scene.inputs, scene.problem.distance_buckets, scene.at
    if i.bucket_count is None or buckets is None:
        return
    reach = len(buckets) // 2
    distance = at.key[:, None, :] - (at.row + at.shift)[:, :, None]
    for most, words in ((scene.case.seq_q, "rows"), (scene.case.seq_k, "keys")):
        of = buckets.long()[distance.clamp(-min(reach, most), min(reach, most)) + reach]
        yield Alternative(inputs=replace(i, relative_buckets=of.unsqueeze(1)), detail=f"of {words}")


RELATIVE_GRADIENT = (
    Semantics(
        name="drelative-bias-reach",
        sentence="in the gradient of the relative bias distances end at the number of rows or keys",
        build=_summed_by_distance,
        outputs=("drelative_bias",),
    ),
    Semantics(
        name="drelative-bias-first-sequence",
        sentence="the gradient of the relative bias is that of the first sequence, not the sum",
        build=_one_sequence(0),
        outputs=("drelative_bias",),
    ),
    Semantics(
        name="drelative-bias-last-sequence",
        sentence="the gradient of the relative bias is that of the last sequence, not the sum",
        build=_one_sequence(-1),
        outputs=("drelative_bias",),
    ),
)
