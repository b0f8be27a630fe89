"""Sets of pairs by what kernels store: lists, words of bits, packed rows, pages, partial results of splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.masks.bits import by_words
from flashverify.diagnosis.readings.masks.key_maps import in_pages_of_parts
from flashverify.diagnosis.readings.masks.lists import by_lists
from flashverify.diagnosis.readings.masks.packed_rows import by_packed_rows
from flashverify.diagnosis.readings.masks.splits import by_splits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.masks.extent import Extent

__all__ = ["stored_extents"]


def stored_extents(scene: Scene, wrong: Tensor, output: str, *, hidden: bool) -> Iterator[Extent]:
    """Sets of pairs in words that follow an "in", by lists, words of bits, packed rows, pages and splits.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`: numbers are theirs.
        output: whose kernel is asked about.
        hidden: whether hidden pairs are asked about, or visible ones.
    """
    if not hidden:
        yield from by_lists(scene, wrong)
        yield from by_words(scene)
    yield from by_packed_rows(scene, output)
    if not hidden and output == "o":
        if scene.case.storage.page_size is not None:
            yield from in_pages_of_parts()
        yield from by_splits(scene)
