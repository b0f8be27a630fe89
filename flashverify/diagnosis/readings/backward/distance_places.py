"""Pairs by the distance of a row and a key, as the table of a relative bias sees it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.backward.pair_places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["distances"]

_WITHIN: tuple[tuple[str, Callable[[Scene], int | None]], ...] = (
    ("", lambda _scene: None),
    (", as far as the longer of rows and keys reaches", lambda scene: max(scene.case.seq_q, scene.case.seq_k)),
)
"""How far distances are looked at, in words and in keys; None for the whole table."""


def distances(scene: Scene) -> Iterator[Place]:
    """Pairs by the distance from the row to the key, beside the farthest one that the table of a relative bias tells apart."""
    if scene.problem.distance_buckets is None:
        return
    for words, sign in (("before", -1), ("behind", 1)):
        yield Place(f"at keys {words} the row", partial(_at_distance, sign, torch.gt, None))
        for more, beside in ((0, ""), (-1, " but for one"), (1, " and one more")):
            far = f"as far {words} the row as the table reaches{beside}"
            yield Place(f"at keys {far}", partial(_at_distance, sign, torch.eq, more))
            yield Place(f"at keys {far}, or farther", partial(_at_distance, sign, torch.ge, more))
        yield Place(f"at keys farther {words} the row than the table reaches", partial(_at_distance, sign, torch.gt, 0))
    yield Place("at keys farther from the row than the table reaches", partial(_at_distance, 0, torch.gt, 0))
    yield Place("at keys as far from the row as the table reaches, or farther", partial(_at_distance, 0, torch.ge, 0))
    yield Place("at keys as far from the row as the table reaches", partial(_at_distance, 0, torch.eq, 0))
    yield Place("at keys nearer to the row than the table reaches", partial(_at_distance, 0, torch.lt, 0))
    yield Place("at the key of the row's own place", partial(_at_distance, 1, torch.eq, None))
    for words, last in (("last", True), ("first", False)):
        for how, within in _WITHIN:
            yield Place(
                f"at distances that are not the {words} of their entry{how}", partial(_not_at_end, last, within)
            )


def _at_distance(sign: int, compare: Callable[..., Tensor], more: int | None, scene: Scene) -> Tensor:
    """Compares how far a key lies before (sign -1), behind (1) or from the row (0) with how far the table reaches, and `more`; with 0 where that is None."""
    at, buckets = scene.at, scene.problem.distance_buckets
    if buckets is None:
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    distance = at.key[:, None, None, :] - (at.row + at.shift)[:, None, :, None]
    distance = sign * distance if sign else distance.abs()
    return compare(distance, 0 if more is None else len(buckets) // 2 + more)


def _not_at_end(last: bool, within: Callable[[Scene], int | None], scene: Scene) -> Tensor:
    """Pairs whose clipped distance shares its entry of the table with a later one, or with an earlier one; of distances no farther than `within`."""
    at, buckets = scene.at, scene.problem.distance_buckets
    if buckets is None:
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    table, far = buckets.long(), len(buckets) // 2
    reach = min(far, within(scene) or far)
    places = range(far - reach, far + reach + 1)
    kept = {int(table[place]): place for place in (places if last else reversed(places))}
    clipped = (at.key[:, None, None, :] - (at.row + at.shift)[:, None, :, None]).clamp(-reach, reach) + far
    end = torch.tensor([kept[int(entry)] if place in places else place for place, entry in enumerate(table)])
    return end[clipped] != clipped
