"""A formula about tiles of a size, as it reads where the size depends on the case: a kernel chooses it by head dim and dtype."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.backward.dictionary import options
from flashverify.diagnosis.readings.backward.pair_places import fixed_places

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.formulas import Formula

__all__ = ["of_each_size", "without_size"]

_SIZE = re.compile(r"\btile of (\d+)")


def of_each_size(formula: Formula, scene: Scene) -> list[Formula]:
    """The formula with each size of its tile; none where it is not about a tile.

    Args:
        formula: that was read.
        scene: the case that it was read on.
    """
    named = [each.words for each in formula.changed.values()] + ([formula.place.words] if formula.place else [])
    sizes = {size for words in named for size in _SIZE.findall(words)}
    if len(sizes) != 1:
        return []
    known = options(scene)
    places = {place.words: place for place in fixed_places(scene)} if formula.place else {}
    found = []
    for size in TILES:
        steps = {step: _resized(each.words, size) for step, each in formula.changed.items()}
        changed = {step: option for step, words in steps.items() for option in known[step] if option.words == words}
        place = places.get(_resized(formula.place.words, size)) if formula.place else None
        if changed.keys() != steps.keys() or (formula.place is not None and place is None):
            return []
        found.append(replace(formula, changed=changed, place=place))
    return found


def without_size(formula: Formula) -> Formula:
    """The formula in words that leave the size open."""
    changed = {step: each._replace(words=_SIZE.sub("tile", each.words)) for step, each in formula.changed.items()}
    place = formula.place
    if place is not None:
        place = place._replace(words=re.sub(r"\btile of \d+ (row|key)s?", r"tile of \1s", place.words))
    return replace(formula, changed=changed, place=place)


def _resized(words: str, size: int) -> str:
    return _SIZE.sub(f"tile of {size}", words)
