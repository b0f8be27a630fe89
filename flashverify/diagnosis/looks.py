"""The steps that a sentence on precision says errors look like; two findings may share one."""

from __future__ import annotations

import re

__all__ = ["LOOK_LIKE", "behind_the_exponential", "looks"]

LOOK_LIKE = " look like "
_OR = ", or "
_HOW_WELL = re.compile(r" \([^()]*% of the squared error explained\)")
_BEHIND = re.compile(
    r"(P|O|dS|dP|delta|the (row sum|reciprocal of the row sum|factor that rescales|accumulator|gradient|sum of dS)|what each tile adds)\b"
)
_NUMBER = re.compile(r" times [0-9.e-]+$")


def looks(sentence: str) -> frozenset[str]:
    """By their words, without the numbers that were fitted; empty where the sentence is about something else."""
    found: set[str] = set()
    for each in re.split(r"\. |\.$", sentence):
        _, like, said = each.partition(LOOK_LIKE)
        if like:
            found |= {_NUMBER.sub(" times a number", step) for step in _HOW_WELL.sub("", said).split(_OR)}
    return frozenset(found)


def behind_the_exponential(steps: frozenset[str]) -> bool:
    """Whether steps are rounded, or cut off, whose errors no exponential makes larger."""
    return bool(steps) and all(_BEHIND.match(step) and not step.endswith(" times a number") for step in steps)
