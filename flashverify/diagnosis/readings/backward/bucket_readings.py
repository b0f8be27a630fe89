"""The gradient of a relative bias: the entry of the table that each pair adds to, where it is not the one that it reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["BucketFormula", "bucket_formulas"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BucketFormula:
    """Other entries.

    Attributes:
        how: in words, after `drelative_bias`.
        entries: of each pair, int64, broadcasts to `[B, 1, Sq, Sk]`; None where the case has not what it is about.
    """

    how: str
    entries: Callable[[Scene], Tensor | None]

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where every pair adds to its own entry."""
        mine = scene.inputs.relative_buckets
        if mine is None or scene.inputs.do is None or not scene.case.seq_q or not scene.case.seq_k:
            return None
        entries = self.entries(scene)
        if entries is None or bool((entries == mine).all()):
            return None
        return Alternative(inputs=replace(scene.inputs, relative_buckets=entries.expand_as(mine).to(mine.dtype)))

    def words(self, _dlse: bool) -> str:
        """A sentence without its full stop."""
        return f"drelative_bias {self.how}"


def bucket_formulas(scene: Scene, output: str) -> Iterator[BucketFormula]:
    """Formulas for the gradient of a relative bias; none for another output."""
    if output != "drelative_bias" or scene.problem.distance_buckets is None:
        return
    for how, change in _distances():
        yield BucketFormula(how=f"adds pairs to the entry of {how}", entries=_entry_of(change))
    for where, far in _far():
        for which, distance in _ENDS:
            yield BucketFormula(how=f"adds pairs {where} to the entry of {which}", entries=_added(far, distance))
        for which, place in (("first", 0), ("last", -1)):
            yield BucketFormula(how=f"adds pairs {where} to the {which} entry", entries=_added(far, place))


def _distance(scene: Scene) -> Tensor:
    at = scene.at
    return at.key[:, None, None, :] - (at.row + at.shift)[:, None, :, None]


def _reach(scene: Scene) -> int:
    buckets = scene.problem.distance_buckets
    assert buckets is not None
    return len(buckets) // 2


def _entries(scene: Scene, distance: Tensor) -> Tensor:
    reach, buckets = _reach(scene), scene.problem.distance_buckets
    assert buckets is not None
    return buckets.long()[distance.clamp(-reach, reach) + reach]


def _entry_of(change: Callable[[Scene, Tensor, int], Tensor | None]) -> Callable[[Scene], Tensor | None]:
    """Entries by other distances; None where these are not known, or lead nowhere."""

    def entries(scene: Scene) -> Tensor | None:
        if scene.problem.distance_buckets is None:
            return None
        distance = change(scene, _distance(scene), _reach(scene))
        return None if distance is None else _entries(scene, distance)

    return entries


_ENDS: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("the farthest distance before the row", lambda reach: -reach),
    ("the farthest distance after the row", lambda reach: reach),
    ("the distance 0", lambda _reach: 0),
)
"""Distances by the reach of a table."""


def _added(far: Callable[[Scene], Tensor], place: int | Callable[[int], int]) -> Callable[[Scene], Tensor | None]:
    """One entry at some pairs, by its number or by its distance."""

    def entries(scene: Scene) -> Tensor | None:
        mine, count = scene.inputs.relative_buckets, scene.inputs.bucket_count
        if mine is None or count is None or scene.problem.distance_buckets is None:
            return None
        entry = (
            place % count if isinstance(place, int) else int(_entries(scene, torch.tensor([place(_reach(scene))]))[0])
        )
        return torch.where(far(scene), entry, mine.long())

    return entries


def _distances() -> Iterator[tuple[str, Callable[[Scene, Tensor, int], Tensor | None]]]:
    yield "the distance of the other sign", lambda _s, d, _r: -d
    yield "the distance without its sign", lambda _s, d, _r: d.abs()
    yield "the distance without its sign, before the row", lambda _s, d, _r: -d.abs()
    yield "the next distance", lambda _s, d, _r: d + 1
    yield "the distance before", lambda _s, d, _r: d - 1
    yield "the distance clipped one too early", lambda _s, d, r: d.clamp(1 - r, r - 1) if r > 1 else None
    yield "the distance modulo those that the table tells apart", lambda _s, d, r: (d + r) % (2 * r + 1) - r
    yield "the distance from the row's number, not its position", lambda s, d, _r: d + s.at.shift[:, None, :, None]
    yield (
        "the distance from the row at the end of the keys",
        lambda s, d, _r: d + (s.at.shift - (s.at.keys - s.at.rows))[:, None, :, None],
    )


def _far() -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    yield "farther apart than the table reaches", lambda s: _distance(s).abs() > _reach(s)
    yield "as far apart as the table reaches, or farther,", lambda s: _distance(s).abs() >= _reach(s)
    yield "whose key lies behind the row", lambda s: _distance(s) > 0
    yield "whose key lies before the row", lambda s: _distance(s) < 0
