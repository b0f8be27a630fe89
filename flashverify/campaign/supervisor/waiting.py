"""Drawn cases of one subject that wait for a compiler: few, and those that cover most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.space.coverage import Coverage
from flashverify.case.text import parse_case

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.case.case import Case

__all__ = ["Waiting"]

_MOST = 64


class Waiting:
    """The cases by their text, of which the pairs of traits count that no case before them covered.

    Args:
        texts: that wait from the beginning.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._cases: dict[str, Case] = {text: parse_case(text) for text in texts}
        self._chosen = Coverage()
        self._gains: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def __contains__(self, text: object) -> bool:
        return text in self._cases

    def add(self, text: str) -> str | None:
        """One more waits; of too many the one that covers least, which no longer does."""
        self._cases[text] = parse_case(text)
        if len(self._cases) <= _MOST:
            return None
        least = min(self._cases, key=self._gain)
        del self._cases[least]
        self._gains.pop(least, None)
        return least

    def take(self) -> str:
        """The one that covers most, which no longer waits."""
        text = max(self._cases, key=self._gain)
        self._chosen.add(self._cases.pop(text))
        self._gains.clear()
        return text

    def clear(self) -> tuple[str, ...]:
        """All of them; none waits any longer."""
        texts = tuple(self._cases)
        self._cases.clear()
        self._gains.clear()
        return texts

    def _gain(self, text: str) -> float:
        """What a case adds to those that were taken; the next one that is taken changes it."""
        if text not in self._gains:
            self._gains[text] = self._chosen.gain(self._cases[text])
        return self._gains[text]
