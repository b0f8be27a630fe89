"""Rules that say which pairs are wrong: a set of keys of each row, and a place in the case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.diagnosis.conditions import Condition, in_words
from flashverify.diagnosis.places import PLACES, region_of
from flashverify.diagnosis.readings.masks.extents import visible_extents
from flashverify.diagnosis.readings.masks.hidden import hidden_extents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.extent import Extent

__all__ = ["Rule", "rules"]

_COVERING = 40
"""Sets, the simplest ones, that are joined with places."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Which pairs.

    Attributes:
        extent: the keys of each row.
        places: where in the case, all of which hold.
    """

    extent: Extent
    places: tuple[Condition, ...] = ()

    @property
    def words(self) -> str:
        """As `keys before the window, only in the first query head`."""
        return ", ".join(filter(None, (self.extent.words, in_words(self.places))))

    def where(self, scene: Scene) -> Tensor:
        """Bool, broadcasts to `[B, Hq, Sq, Sk]`."""
        found = self.extent.where(scene)
        return found & region_of(scene, self.places).pairs if self.places else found


def rules(scene: Scene, wrong: Tensor, asked: Tensor, *, hidden: bool) -> Iterator[Rule]:
    """The rules that say exactly which pairs are `wrong`, the simplest first.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`, at least one pair.
        asked: bool, broadcasts to it: the pairs that were read; the others may be anything.
        hidden: whether they are hidden pairs, or visible ones.
    """
    covering = []
    for extent in (hidden_extents if hidden else visible_extents)(scene, wrong):
        mine = extent.where(scene) & asked
        if bool((wrong & ~mine).any()):
            continue
        if bool((mine == wrong).all()):
            yield Rule(extent)
        else:
            covering.append((extent, mine))
    places = []
    for place in (*PLACES, *_numbered(scene, wrong)):
        region = region_of(scene, (place,))
        if region.channels is None and not region.everything and not bool((wrong & ~region.pairs).any()):
            places.append((place, region.pairs))
    for extent, mine in covering[:_COVERING]:
        for place, pairs in places:
            if bool(((mine & pairs) == wrong).all()):
                yield Rule(extent, (place,))
    for extent, mine in covering[:4]:
        for n, (place, pairs) in enumerate(places):
            for other, more in places[n + 1 :]:
                if bool(((mine & pairs & more) == wrong).all()):
                    yield Rule(extent, (place, other))


def _numbered(scene: Scene, wrong: Tensor) -> Iterator[Condition]:
    """Places by the numbers of the heads, sequences and rows that are wrong."""
    heads = wrong.any(-1).any(-1).any(0).nonzero().squeeze(1).tolist()
    rows = scene.at.row[wrong.any(-1).any(1)].tolist()
    numbers = {"head": heads, "sequence": wrong.flatten(1).any(1).nonzero().squeeze(1).tolist(), "row": rows}
    if scene.case.mask.packed is not None:
        numbers["sequence"] = scene.at.row_sequence[wrong.any(-1).any(1)].tolist()
    for name, found in numbers.items():
        low, high = min(found), max(found)
        if low == high:
            yield Condition(name, "==", low)
        yield Condition(name, ">=", low)
        yield Condition(name, "<=", high)
