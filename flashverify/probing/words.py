"""Cases by the words of their text, and the cases that a declaration refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.text import parse_case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flashverify.case.case import Case

__all__ = ["Refusal", "Words", "case_text"]

Words = dict[str, str | int | None]
"""Words of a case by their keys; None leaves one out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Cases that no field of `Supports` leaves out, for `also`.

    Attributes:
        code: an expression of `case`, true where it is refused.
        reason: in words.
        refuses: the same as a function.
    """

    code: str
    reason: str
    refuses: Callable[[Case], bool]


def case_text(words: Mapping[str, str | int | None]) -> str:
    """The text of a case.

    Raises:
        CaseTextError: the words contradict each other.
    """
    return str(parse_case(" ".join(["fv1", *(f"{key}={value}" for key, value in words.items() if value is not None)])))
