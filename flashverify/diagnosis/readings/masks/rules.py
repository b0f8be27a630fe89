"""Rules that say which pairs are wrong: a set of keys of each row, and a place in the case."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.conditions import Condition, in_words
from flashverify.diagnosis.places import PLACES, region_of
from flashverify.diagnosis.readings.masks.extents import EVERY, visible_extents
from flashverify.diagnosis.readings.masks.hidden import hidden_extents
from flashverify.diagnosis.readings.masks.pattern_blocks import hidden_blocks
from flashverify.diagnosis.readings.masks.stored import stored_extents
from flashverify.diagnosis.readings.masks.walks import walked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.extent import Extent

    _Set = tuple[Extent, Tensor]
    _Place = tuple[Condition, Tensor]

__all__ = ["Rule", "places_of", "rules"]

_COVERING = 40
"""Sets, the simplest ones, that are joined with places."""
_STAGE = 60
"""Rules of one form."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Which pairs.

    Attributes:
        extent: the keys of each row.
        places: where in the case, all of which hold.
        within: a further set, in which they lie; None for everywhere.
        joined: whether both sets are a part of what the mask shows or hides.
    """

    extent: Extent
    places: tuple[Condition, ...] = ()
    within: Extent | None = None
    joined: bool = False

    @property
    def words(self) -> str:
        """As `keys before the window, only in the first query head`."""
        within = "" if self.within is None else f"{'' if self.extent.words == EVERY else ','} in {self.within.words}"
        return ", ".join(filter(None, (self.extent.words + within, in_words(self.places))))

    @property
    def everything(self) -> bool:
        """Whether it is every visible pair."""
        return not self.places and self.within is None and self.extent.words == EVERY

    def where(self, scene: Scene) -> Tensor:
        """Bool, broadcasts to `[B, Hq, Sq, Sk]`."""
        found = self.extent.where(scene)
        if self.within is not None:
            found = found & self.within.where(scene)
        return found & region_of(scene, self.places).pairs if self.places else found


def rules(scene: Scene, wrong: Tensor, asked: Tensor, output: str, *, hidden: bool) -> Iterator[Rule]:
    """The rules that say exactly which pairs are `wrong`, the simplest first.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`, at least one pair.
        asked: bool, broadcasts to it: the pairs that were read; the others may be anything.
        output: whose mask it is; empty where no kernel walks, so that no further set is asked for.
        hidden: whether they are hidden pairs, or visible ones.
    """
    early: list[_Set] = []
    late: list[_Set] = []
    exact: dict[bool, list[Rule]] = {False: [], True: []}
    every: list[_Set] = []  # the first that holds all wrong pairs
    sets = chain(hidden_extents(scene, wrong), hidden_blocks(scene)) if hidden else visible_extents(scene, wrong)
    for extent in sets:
        mine = extent.where(scene) & asked
        if bool((wrong & ~mine).any()):
            continue
        every = every or [(extent, mine)]
        if bool((mine == wrong).all()):
            exact[extent.numbered].append(Rule(extent))
        else:
            (late if extent.numbered else early).append((extent, mine))
    yield from exact[False][:_STAGE]
    covering = _Covering(scene, wrong, asked)
    places, numbers = covering.places(PLACES), covering.places(_numbered(scene, wrong))
    early, late = early[:_COVERING], late[:_COVERING]
    stored = covering.sets(stored_extents(scene, wrong, output, hidden=hidden) if output else ())
    walks = covering.sets(walked(scene, output) if output else ())
    further = stored + walks
    stages = (
        covering.alone(every, stored),
        covering.alone(every, walks),
        iter(exact[True]),
        covering.at(early, places),
        covering.both(every, further, places),
        covering.at(late, places),
        covering.at(early + late, numbers),
        covering.within([each for each in early + late if each[0] is not every[0][0]], further),
        covering.at_two(early[:4], places + numbers),
    )
    for stage in stages:
        yield from islice(stage, _STAGE)


def places_of(scene: Scene, wrong: Tensor) -> list[tuple[Condition, Tensor]]:
    """Places, no whole case, that hold every pair of `wrong`, with their pairs, the simpler ones first."""
    covering = _Covering(scene, wrong, torch.ones(1, 1, 1, 1, dtype=torch.bool))
    return covering.places(PLACES) + covering.places(_numbered(scene, wrong))


class _Covering:
    """Sets that hold every wrong pair, beside what they hold of the right ones.

    Two of them are a rule where no right pair is in both.
    """

    def __init__(self, scene: Scene, wrong: Tensor, asked: Tensor) -> None:
        self._scene, self._wrong = scene, wrong
        self._right = (asked & ~wrong).expand(wrong.shape)

    def places(self, found: Iterable[Condition]) -> list[_Place]:
        """Those of the places that hold every wrong pair and are no whole case, as pairs."""
        kept = []
        for place in found:
            region = region_of(self._scene, (place,))
            if region.channels is None and not region.everything and not bool((self._wrong & ~region.pairs).any()):
                kept.append((place, region.pairs))
        return kept

    def sets(self, extents: Iterable[Extent]) -> list[_Set]:
        """Those of the sets that hold every wrong pair, with the right pairs that they hold."""
        kept = []
        for extent in extents:
            mine = extent.where(self._scene)
            if not bool((self._wrong & ~mine).any()):
                kept.append((extent, mine & self._right))
        return kept

    def at(self, sets: list[_Set], places: list[_Place]) -> Iterator[Rule]:
        """A set at a place."""
        for extent, mine in sets:
            for place, pairs in places:
                if bool(((mine & pairs) == self._wrong).all()):
                    yield Rule(extent, (place,))

    def at_two(self, sets: list[_Set], places: list[_Place]) -> Iterator[Rule]:
        """A set where two places overlap."""
        for extent, mine in sets:
            for n, (place, pairs) in enumerate(places):
                for other, more in places[n + 1 :]:
                    if bool(((mine & pairs & more) == self._wrong).all()):
                        yield Rule(extent, (place, other))

    def alone(self, every: list[_Set], further: list[_Set]) -> Iterator[Rule]:
        """A further set, of every key that the mask shows, or that a part of it hides."""
        for extent, mine in further if every else ():
            if not bool((every[0][1] & mine).any()):
                yield Rule(every[0][0], within=extent)

    def both(self, every: list[_Set], further: list[_Set], places: list[_Place]) -> Iterator[Rule]:
        """A further set at a place."""
        if places and every and further:
            theirs = self._flat([mine & every[0][1] for _, mine in further])
            common = theirs @ self._flat([pairs for _, pairs in places]).T
            for n, m in ((common == 0) & (theirs.sum(1, keepdim=True) > 0)).nonzero().tolist():
                yield Rule(every[0][0], (places[m][0],), further[n][0])

    def within(self, sets: list[_Set], further: list[_Set]) -> Iterator[Rule]:
        """A set in a further one."""
        if sets and further:
            theirs = self._flat([mine for _, mine in further])
            common = theirs @ self._flat([mine for _, mine in sets]).T
            for n, m in ((common == 0) & (theirs.sum(1, keepdim=True) > 0)).nonzero().tolist():
                yield Rule(sets[m][0], within=further[n][0], joined=True)

    def _flat(self, found: list[Tensor]) -> Tensor:
        """The right pairs of each, `[sets, right pairs]`."""
        return torch.stack([x.expand(self._right.shape)[self._right] for x in found]).to(torch.float32)


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
