"""Random choices of a seeded generator, for lists that are the same every time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

__all__ = ["RandomSource"]


class RandomSource:
    """Choices as a part of the mask asks for them.

    Args:
        random: the generator.
    """

    def __init__(self, random: Random) -> None:
        self._random = random

    def choice(self, values: Sequence[Any]) -> Any:
        """One of `values`."""
        return values[self._random.randrange(len(values))]

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        return self._random.randint(low, high)

    def integers(self, low: int, high: int, *, least: int, most: int) -> list[int]:
        """From `least` to `most` integers."""
        return [self.integer(low, high) for _ in range(self.integer(least, most))]

    def size(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        return self.integer(low, max(low, high))

    def flag(self) -> bool:
        """True as often as false."""
        return self._random.random() < 0.5

    def one_in(self, n: int) -> bool:
        """True about once in `n` draws."""
        return self._random.randrange(n) == 0
