"""Parts of the mask that are patterns drawn by a seed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.case.codec import pattern_text
from flashverify.case.masks.part import MaskPart, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LIVE", "SeededPart"]

LIVE = (128, 256, 128, 240, 0, 16, 240)
"""Shares of live pairs or blocks to draw from, in 256."""


class SeededPart(MaskPart):
    """A part whose value is a dataclass with `live`, `seed` and `each`."""

    role: Role = "extra"
    seeded = True

    def format(self, value: Any) -> str:
        """The fields in their order."""
        return pattern_text(value)

    def simpler(self, value: Any) -> Iterator[Any]:
        """Everything live, nothing live, one pattern for all heads, small seeds."""
        for live in (256, 0):
            if value.live not in (256, live):
                yield replace(self.plain(value), live=live)
        if value.each:
            yield replace(value, each=False)
        for seed in (0, 1, 2):
            if seed < value.seed:
                yield replace(value, seed=seed)

    def plain(self, value: Any) -> Any:
        """The value without what a pattern that is all alike cannot show."""
        return replace(value, seed=0, each=False)
