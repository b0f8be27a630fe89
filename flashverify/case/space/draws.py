"""Draws of the mask and the modifiers of a case, and the source of choices that they ask."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.masks.mask import PARTS, Mask
from flashverify.case.masks.part import Drawn
from flashverify.case.modifiers.logits import DROPOUT, MODIFIERS, Logits
from flashverify.case.space.sampling import one_in, sampled_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.masks.packed import Packed
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["Choices", "draw_mask", "draw_modifiers"]

_EDGES = tuple(
    sorted({0, 1, 2, 3, 5, 11, 13, 37, 53, 97, *(t + d for t in (8, 16, 24, 32, 48, 64, 80, 96) for d in (-1, 0, 1))})
    + [t + d for t in (128, 192, 256, 384, 512, 1024, 2048, 4096) for d in (-1, 0, 1)]
)
"""Lengths at which loops, tiles and splits end: tile sizes with their neighbours, primes, one past a power of two."""


class Choices:
    """Random choices as a part of the mask or a modifier asks for them, from hypothesis."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def choice(self, values: Sequence[Any]) -> Any:
        """One of `values`."""
        return self._draw(sampled_from(values))

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        return int(self._draw(st.integers(low, high)))

    def integers(self, low: int, high: int, *, least: int, most: int) -> list[int]:
        """From `least` to `most` integers."""
        return list(self._draw(st.lists(st.integers(low, high), min_size=least, max_size=most)))

    def size(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, as often as not moved down to an edge."""
        value = self.integer(low, max(low, high))
        return max(low, _EDGES[bisect_right(_EDGES, value) - 1]) if self.flag() else value

    def flag(self) -> bool:
        """True as often as false."""
        return bool(self._draw(st.booleans()))

    def one_in(self, n: int) -> bool:
        """True about once in `n` draws."""
        return bool(self._draw(one_in(n)))


def draw_mask(
    draw: Draw,
    supports: Supports,
    parts: frozenset[str],
    shape: tuple[int, int, int],
    block: tuple[int, int] = (16, 16),
    packed: Packed | None = None,
) -> Mask:
    """The mask with these parts.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        parts: of the mask.
        shape: (batch, seq_q, seq_k); the batch is the number of sequences where they are packed.
        block: rows and keys of a block.
        packed: the sequences, where they are drawn already.
    """
    (sequences, seq_q, seq_k), source, values = shape, Choices(draw), dict[str, Any]()
    for part in (part for part in PARTS if part.name in parts):
        drawn = Drawn(
            supports=supports,
            parts=parts,
            sequences=sequences,
            seq_q=seq_q,
            seq_k=seq_k,
            block=block,
            values=dict(values),
        )
        values[part.name] = packed if packed is not None and part.name == "packed" else part.draw(source, drawn)
    return Mask(**values)


def draw_modifiers(draw: Draw, supports: Supports, features: frozenset[str]) -> tuple[Logits, float]:
    """The modifications of the logits, and the probability of dropout."""
    source = Choices(draw)
    drawn = {each.name: each.draw(source, supports) for each in MODIFIERS if each.name in features}
    dropout = drawn.pop(DROPOUT.name, DROPOUT.absent)
    return Logits(**drawn), dropout
