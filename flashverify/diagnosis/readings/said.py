"""A reading in words, and how many cases it rests on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ON_FAILING", "Said", "listed"]

ON_FAILING = ", on the cases that fail"
"""With what a rule ends that right cases contradict."""


@dataclass(frozen=True, slots=True)
class Said:
    """One statement.

    Attributes:
        words: begins with a lower-case letter or a symbol, has no full stop.
        cases: on which it holds; 0 where it speaks of one case that it names.
        part: whether more is wrong than it says, or less: it leaves open which pairs, or says what right cases contradict.
        both: whether right cases were asked too, and none of them contradicts it.
    """

    words: str
    cases: int
    part: bool = False
    both: bool = False


def listed(names: list[str]) -> str:
    """`O, dV and dQ`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
