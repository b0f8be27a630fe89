"""What a trace sees of a subject's own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.repair.kinds import kind_of, kinds_of
from flashverify.repair.own import is_own

if TYPE_CHECKING:
    from types import CodeType, FrameType

__all__ = ["Seen"]


class Seen:
    """What a trace of a call saw of the subject's own code.

    Attributes:
        lines: that ran.
        kinds: of the values of names, at the end of each call.
        returned: likewise of what calls returned.
        under: for each call the codes of the subject that called it, outermost first.
    """

    def __init__(self) -> None:
        self.lines: dict[CodeType, set[int]] = {}
        self.kinds: dict[CodeType, dict[str, str]] = {}
        self.returned: dict[CodeType, str] = {}
        self.under: dict[CodeType, set[tuple[CodeType, ...]]] = {}
        self._open: list[CodeType] = []

    def entered(self, frame: FrameType, event: str, _: Any) -> Any:
        """A function is called."""
        code = frame.f_code
        if event != "call" or not is_own(code.co_filename):
            return None
        self.lines.setdefault(code, set())
        self.kinds.setdefault(code, {})
        self._open.append(code)
        self.under.setdefault(code, set()).add(tuple(self._open))
        return self._inside

    def _inside(self, frame: FrameType, event: str, value: Any) -> Any:
        self.lines[frame.f_code].add(frame.f_lineno)
        if event == "return":
            self.kinds[frame.f_code] |= kinds_of(frame)
            self.returned[frame.f_code] = kind_of(value) or self.returned.get(frame.f_code, "")
            if self._open and self._open[-1] is frame.f_code:
                self._open.pop()
        return self._inside
