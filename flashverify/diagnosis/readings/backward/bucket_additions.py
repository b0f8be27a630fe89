"""The gradient of a relative bias: pairs that add to an entry at the end of the table as well as to their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.distance_places import distances
from flashverify.diagnosis.readings.backward.quantities import known_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.pair_places import Place

__all__ = ["BucketAddition", "bucket_additions"]

_NAME = "drelative_bias"
_CLEAR = 4.0
"""Times its bound that what is added is at least, somewhere."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BucketAddition:
    """Pairs that add to one more entry.

    Attributes:
        place: of the pairs.
        after: whether it is the entry of the farthest distance after the row, or of that before it.
    """

    place: Place
    after: bool

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where no pair adds so."""
        more = added(scene, self.place, after=self.after)
        if more is None or not bool((more[1] > 0).any()):
            return None

        def finish(values: Expectations) -> Expectations:
            found = dict(values)
            if _NAME in found:
                x, (value, size) = found[_NAME], more
                share = (x.total / _magnitude(scene)).nan_to_num(0.0, 0.0, 0.0).amax()
                found[_NAME] = replace(x, value=x.value + value, total=x.total + share * size, strict=None)
            return found

        return Alternative(finish=finish)

    def words(self, _dlse: bool) -> str:
        """A sentence without its full stop."""
        side = "after" if self.after else "before"
        return f"{_NAME} adds pairs {self.place.words} to the entry of the farthest distance {side} the row as well as to their own"


def bucket_additions(scene: Scene, output: str) -> Iterator[BucketAddition]:
    """Additions that give the output of a case; none for another output than the gradient of a relative bias."""
    if output != _NAME or scene.problem.distance_buckets is None or output not in scene.right:
        return
    right, got = scene.right[output], scene.outputs[output]
    asked = torch.isfinite(right.total) & torch.isfinite(got)
    for place in distances(scene):
        for after in (False, True):
            more = added(scene, place, after=after)
            if more is None:
                return
            near = (got - right.value - more[0]).abs() <= right.total * 2
            if bool(near[asked].all()) and bool((more[0].abs() > _CLEAR * right.total)[asked].any()):
                yield BucketAddition(place=place, after=after)


def added(scene: Scene, place: Place, *, after: bool) -> tuple[Tensor, Tensor] | None:
    """What the pairs of a place add to an entry at the end, in the shape of the table, and its magnitudes; None where a case has no table."""
    buckets, count, s = scene.problem.distance_buckets, scene.inputs.bucket_count, known_steps(scene)
    if buckets is None or count is None or s is None:
        return None
    ds = s.formula()
    where = place.pairs(scene).expand(ds.shape)
    found = []
    for x in (ds, ds.abs()):
        table = ds.new_zeros(ds.shape[1], count)
        table[:, int(buckets[-1 if after else 0])] = torch.where(where, x, 0.0).sum((0, 2, 3))
        found.append(table)
    return found[0], found[1]


def _magnitude(scene: Scene) -> Tensor:
    """The sum of |dS| of each entry."""
    s, count = known_steps(scene), scene.inputs.bucket_count
    assert s is not None
    assert count is not None
    assert scene.inputs.relative_buckets is not None
    ds = s.formula().abs()
    index = scene.inputs.relative_buckets.long().expand_as(ds).transpose(0, 1).flatten(1)
    return ds.new_zeros(ds.shape[1], count).scatter_add(1, index, ds.transpose(0, 1).flatten(1))
