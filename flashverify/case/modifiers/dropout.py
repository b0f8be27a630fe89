"""Dropout of the weights: the probability that a weight is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from flashverify.case.codec import float_text, parse_float
from flashverify.case.modifiers.modifier import Modifier
from flashverify.case.require import require
from flashverify.case.values.dropout_words import deciding_word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.masks.part import Source
    from flashverify.case.supports import Supports

__all__ = ["DROPOUT", "draw_threshold"]


class _Dropout(Modifier):
    name = "dropout"
    section: Literal["logits", ""] = ""
    follows: Literal["distance", "number", ""] = "number"
    absent = 0.0

    def check(self, value: Any) -> None:
        """A probability below 1."""
        require(0 <= value < 1, "dropout", value, "0 <= dropout < 1")

    def parse(self, text: str) -> float:
        """A number."""
        return parse_float(text)

    def format(self, value: Any) -> str:
        """A number."""
        return float_text(value)

    def draw(self, source: Source, supports: Supports) -> Any:
        """One half, little, and almost all."""
        return source.choice((0.5, 0.1, 0.9))

    def simpler(self, value: Any) -> Iterator[float]:
        """One half."""
        yield 0.5


DROPOUT = _Dropout()


def draw_threshold(source: Source, case: Case) -> float:
    """A probability at which one pair of the case is just kept or just dropped; the case's own where that would be near 0 or 1."""
    mask, packed = case.mask, case.mask.packed
    shapes = packed.lengths() if packed is not None else ((case.seq_q, case.seq_k),) * case.batch
    rows, keys = mask.query_lengths or [n for n, _ in shapes], mask.key_lengths or [n for _, n in shapes]
    inside = [b for b in range(len(shapes)) if rows[b] and keys[b]]
    if not inside:
        return case.dropout
    b = source.choice(inside)
    head, row, key = (source.integer(0, limit - 1) for limit in (case.heads_q, rows[b], keys[b]))
    p: float = (deciding_word(case, b, head, row, key) + source.choice((0, 1))) / 2**32
    return p if 0.02 < p < 0.98 else case.dropout
