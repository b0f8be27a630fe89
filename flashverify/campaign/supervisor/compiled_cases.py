"""The cases that a search on a GPU judges outside of its batches, because their kernels are compiled ahead: each is judged once.

They are those that were rehearsed as examples of a kind, and those that a batch drew and put off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["CompiledCases"]

_COMPILED = "compiled "


class CompiledCases:
    """Which cases were judged, which wait or are handed out, and which of them have to be noted.

    Args:
        waiting: by the spec of their subject, cases that were put off in a run that is resumed.

    Attributes:
        promised: cases that were judged or handed out.
    """

    def __init__(self, waiting: Mapping[str, tuple[str, ...]]) -> None:
        self._put_off = {spec: dict.fromkeys(cases) for spec, cases in waiting.items()}
        self._judged: dict[str, set[str]] = {}
        self._taken: dict[str, set[str]] = {}
        self.promised = 0

    @staticmethod
    def origin(spec: str) -> str:
        """What their results are marked with."""
        return _COMPILED + spec

    @staticmethod
    def spec_of(origin: str) -> str | None:
        """The spec of the subject of a result that is marked so; None of any other."""
        return origin.removeprefix(_COMPILED) if origin.startswith(_COMPILED) else None

    @property
    def judged(self) -> int:
        """Cases that were judged."""
        return sum(map(len, self._judged.values()))

    def resumed(self, spec: str, text: str) -> None:
        """A stored result."""
        self.promised += text not in self._judged.get(spec, ())
        self.answered(spec, text)
        self.stored(spec, text)

    def left_over(self, spec: str) -> tuple[str, ...]:
        """The cases of a subject that a run that is resumed had put off and not judged; they count as taken."""
        return self.new(spec, self._put_off.get(spec, ()))

    def new(self, spec: str, texts: Iterable[str]) -> tuple[str, ...]:
        """Takes those cases that nobody judged or took before."""
        taken, judged = self._taken.setdefault(spec, set()), self._judged.get(spec, set())
        found = tuple(text for text in dict.fromkeys(texts) if text not in taken and text not in judged)
        taken.update(found)
        return found

    def put_off(self, spec: str, text: str) -> bool:
        """A batch drew a case and put it off; whether it is new. It is noted from now on until its result is stored."""
        if not self.new(spec, (text,)):
            return False
        self._put_off.setdefault(spec, {})[text] = None
        return True

    def dropped(self, spec: str, text: str) -> None:
        """A case that waited had to go; it may be drawn again."""
        self._taken[spec].discard(text)
        self._put_off[spec].pop(text, None)

    def answered(self, spec: str, text: str) -> None:
        """A case was judged."""
        self._judged.setdefault(spec, set()).add(text)
        self._taken.setdefault(spec, set()).discard(text)

    def stored(self, spec: str, text: str) -> None:
        """Its result is in the store."""
        self._put_off.get(spec, {}).pop(text, None)

    def noted(self) -> dict[str, tuple[str, ...]]:
        """What is to be noted: the cases that were put off and have no stored result, by spec."""
        return {spec: tuple(cases) for spec, cases in self._put_off.items() if cases}
