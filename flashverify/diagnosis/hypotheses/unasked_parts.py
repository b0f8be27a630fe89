"""A part of a mask that is not asked in tiles that the other parts leave whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypotheses.where_masked import cut_tiles
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import parts, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.observation import Scene

__all__ = ["UNASKED_PARTS"]

_OF_A_BAND = frozenset({"causal", "left", "right"})


def _unasked(names: tuple[str, ...]) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        found = parts(scene)
        others = {name: part for name, part in found.items() if name not in names}
        if len(others) == len(found) or not _OF_A_BAND & set(others):
            return
        rest = seen(others)
        own = seen({name: part for name, part in found.items() if name in names})
        for cut, words in cut_tiles(scene, rest):
            yield Alternative(inputs=replace(scene.inputs, visible=rest & (own | ~cut)), detail=words)

    return build


UNASKED_PARTS = tuple(
    Semantics(
        name=f"{part}-unasked-in-whole-tiles",
        sentence=f"{words} is not asked in tiles that the causal mask and the window leave whole",
        build=_unasked(names),
    )
    for part, words, names in (("bitmap", "the bitmap", ("bitmap",)), ("tree", "the tree", ("tree",)))
)
