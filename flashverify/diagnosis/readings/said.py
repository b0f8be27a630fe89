"""A reading in words, and how many cases it rests on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Said", "listed"]


@dataclass(frozen=True, slots=True)
class Said:
    """One statement.

    Attributes:
        words: begins with a lower-case letter or a symbol, has no full stop.
        cases: on which it holds; 0 where it speaks of one case that it names.
    """

    words: str
    cases: int


def listed(names: list[str]) -> str:
    """`O, dV and dQ`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
