"""Wrong semantics of a relative position bias: its table, its distances, and the sum that makes its gradient."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.modifiers.relative_bias import RELATIVE_BIAS, RelativeBias, bucket_of_distance
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import of_heads_open
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Build = Callable[[Scene], Iterator[Alternative]]

__all__ = ["RELATIVE"]

_LN2 = math.log(2.0)


def _missing(scene: Scene) -> Iterator[Alternative]:
    i = scene.inputs
    if scene.problem.relative_bias is not None:
        yield Alternative(inputs=replace(i, biases=i.biases[:-1], relative_buckets=None, bucket_count=None))


def _table(change: Callable[[Scene, Tensor], Tensor | None]) -> Build:
    """Another table `[Hq, buckets]`, read by the declared buckets; None where it would be the same."""

    def build(scene: Scene) -> Iterator[Alternative]:
        table = scene.problem.relative_bias
        changed = None if table is None else change(scene, table.double())
        if changed is not None:
            yield _reading(scene, changed, scene.inputs.relative_buckets)

    return build


def _reading(scene: Scene, table: Tensor, buckets: Tensor) -> Alternative:
    """The table read by other buckets `[B, 1, Sq, Sk]`; the relative bias is the last of the biases."""
    term = table[:, buckets[:, 0]].transpose(0, 1)
    return Alternative(inputs=replace(scene.inputs, biases=(*scene.inputs.biases[:-1], term), relative_buckets=buckets))


def _distances(*changes: Callable[[Scene, Tensor], Tensor | None]) -> Build:
    """Other signed distances key - position, int64 `[B, Sq, Sk]`; those out of reach are clipped. None where they would be the same."""

    def build(scene: Scene) -> Iterator[Alternative]:
        table, buckets, at = scene.problem.relative_bias, scene.problem.distance_buckets, scene.at
        if table is None or buckets is None:
            return
        reach = len(buckets) // 2
        distance = at.key[:, None, :] - (at.row + at.shift)[:, :, None]
        for change in changes:
            changed = change(scene, distance)
            if changed is not None:
                of = buckets.long()[changed.clamp(-reach, reach) + reach].unsqueeze(1)
                found = _reading(scene, table.double(), of)
                yield found
                if found.inputs is not None and not torch.equal(of, scene.inputs.relative_buckets):
                    declared = replace(found.inputs, relative_buckets=scene.inputs.relative_buckets)
                    yield replace(found, inputs=declared, detail="its gradient is summed at the declared one")

    return build


def _other_buckets(change: Callable[[RelativeBias], RelativeBias]) -> Build:
    """The table read by the buckets of another kind of as many entries."""

    def build(scene: Scene) -> Iterator[Alternative]:
        table, kind, at = scene.problem.relative_bias, scene.case.logits.relative_bias, scene.at
        if table is None or kind is None:
            return
        other = change(RelativeBias(*kind))
        try:
            RELATIVE_BIAS.check(other)
        except UsageError:
            return
        buckets, reach = torch.tensor(bucket_of_distance(other)), other.max_distance
        distance = (at.key[:, None, :] - (at.row + at.shift)[:, :, None]).clamp(-reach, reach)
        yield _reading(scene, table.double(), buckets[distance + reach].unsqueeze(1))

    return build


def _of_heads(change: Callable[[Scene, Tensor], Tensor]) -> Build:
    """Each query head reads the table of another one, by a function of their numbers."""

    def table_of(scene: Scene, table: Tensor) -> Tensor | None:
        own = torch.arange(len(table))
        heads = change(scene, own)
        return None if bool((heads == own).all()) else table[heads]

    return _table(table_of)


def _clipped_early(scene: Scene, distance: Tensor) -> Tensor | None:
    assert scene.problem.distance_buckets is not None
    reach = len(scene.problem.distance_buckets) // 2
    return distance.clamp(1 - reach, reach - 1) if reach > 1 else None


def _clipped_late(scene: Scene) -> Iterator[Alternative]:
    """Distances that are clipped too late, or not at all: they read what lies beside the table of their head, that of its neighbour."""
    table, buckets, at = scene.problem.relative_bias, scene.problem.distance_buckets, scene.at
    if table is None or buckets is None or not buckets.numel():
        return
    flat, reach = table.double()[:, buckets.long()], len(buckets) // 2
    distance = at.key[:, None, :] - (at.row + at.shift)[:, :, None]
    far = int(distance.abs().max()) if distance.numel() else 0
    for left, right, detail in (
        (1, 0, "keys before the row, one too late"),
        (0, 1, "keys after the row, one too late"),
        (1, 1, "both sides, one too late"),
        (far, 0, "keys before the row, not at all"),
        (0, far, "keys after the row, not at all"),
        (far, far, "both sides, not at all"),
    ):
        place = distance.clamp(-reach - left, reach + right) + reach
        read = torch.arange(len(flat)).view(-1, 1, 1, 1) * flat.shape[1] + place
        outside = (read < 0) | (read >= flat.numel())
        other = flat.flatten()[read.clamp(0, flat.numel() - 1)].transpose(0, 1)
        inputs = replace(scene.inputs, biases=(*scene.inputs.biases[:-1], other))
        yield Alternative(inputs=inputs, detail=detail, finish=of_heads_open(scene, outside.flatten(1).any(1)[None]))


def _without_shift(scene: Scene, distance: Tensor) -> Tensor | None:
    shift = scene.at.shift
    return distance + shift[:, :, None] if bool(shift.any()) else None


RELATIVE = (
    Semantics(name="relative-bias-missing", sentence="the relative bias is not added", build=_missing),
    Semantics(
        name="relative-bias-without-log2e",
        sentence="the relative bias is added to base-2 logits without the factor log2(e)",
        build=_table(lambda _s, table: table * _LN2),
    ),
    Semantics(
        name="relative-bias-sign", sentence="the relative bias is subtracted", build=_table(lambda _s, table: -table)
    ),
    Semantics(
        name="relative-bias-one-direction",
        sentence="keys after a row read the relative bias of one direction, where both are declared",
        build=_other_buckets(lambda kind: kind._replace(bidirectional=not kind.bidirectional)),
    ),
    Semantics(
        name="relative-bias-distance-sign",
        sentence="the relative bias is read at the distance of the other sign: row - key",
        build=_distances(lambda _s, distance: -distance),
    ),
    Semantics(
        name="relative-bias-by-size",
        sentence="the relative bias is read at the size of the distance, whichever side the key lies on",
        build=_distances(lambda _s, distance: distance.abs(), lambda _s, distance: -distance.abs()),
    ),
    Semantics(
        name="relative-bias-on-one-side",
        sentence="keys on one side of the row have the relative bias of distance 0",
        build=_distances(lambda _s, distance: distance.clamp(max=0), lambda _s, distance: distance.clamp(min=0)),
    ),
    Semantics(
        name="relative-bias-without-shift",
        sentence="the relative bias measures distances from the top-left diagonal, where the bottom-right one is declared",
        build=_distances(_without_shift),
    ),
    Semantics(
        name="relative-bias-clipped-early",
        sentence="the relative bias clips distances one too early",
        build=_distances(_clipped_early),
    ),
    Semantics(
        name="relative-bias-clipped-late",
        sentence="the relative bias clips distances too late, and reads the entries of the head beside",
        build=_clipped_late,
        one_way=True,
    ),
    Semantics(
        name="relative-bias-max-distance-off-by-one",
        sentence="the buckets of the relative bias are those of a largest distance that is off by one",
        build=_other_buckets(lambda kind: kind._replace(max_distance=kind.max_distance - 1)),
    ),
    Semantics(
        name="relative-bias-off-by-one",
        sentence="the relative bias is read at a distance that is off by one",
        build=_distances(lambda _s, distance: distance + 1, lambda _s, distance: distance - 1),
    ),
    Semantics(
        name="relative-bias-first-head",
        sentence="every head reads the relative bias of the first one",
        build=_of_heads(lambda _s, heads: heads * 0),
    ),
    Semantics(
        name="relative-bias-of-kv-head",
        sentence="a query head reads the relative bias of the query head with the number of its kv head",
        build=_of_heads(lambda scene, heads: heads // scene.group),
    ),
    Semantics(
        name="relative-bias-of-next-head",
        sentence="a head reads the relative bias of the next one",
        build=_of_heads(lambda _s, heads: (heads + 1) % len(heads)),
    ),
    Semantics(
        name="relative-bias-transposed",
        sentence="the table of the relative bias is read as [buckets, heads]",
        build=_table(lambda _s, table: table.reshape(table.shape[1], -1).T if len(table) > 1 else None),
    ),
)
