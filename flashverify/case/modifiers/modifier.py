"""What a modifier of the logits or the weights consists of, so that one file adds one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.masks.part import Source
    from flashverify.case.supports import Supports
    from flashverify.case.tensor_spec import TensorSpec

__all__ = ["FAR", "Modifier"]

FAR = -(2.0**13)
"""What stands for -1e4, the number that hides a pair where no mask is at hand; exact in every dtype."""


class Modifier:
    """One modifier. A subclass says what differs from these defaults.

    Attributes:
        name: of the field, and of its key in the text form of a case.
        section: `logits` for a field of `Logits`, empty for one of `Case`.
        follows: what decides, besides values, what it does to a pair: `distance` of key and row position, `number` of row and key.
            Empty where neither does.
        absent: value of a case without it; every value of a case with it is true.
        tensors: of the problem.
    """

    name: str
    section: Literal["logits", ""] = "logits"
    follows: Literal["distance", "number", ""] = ""
    absent: Any = None
    tensors: tuple[TensorSpec, ...] = ()

    def check(self, value: Any) -> None:
        """Refuses a value, with a UsageError."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """The value that the text names; raises a ValueError or UsageError."""
        raise NotImplementedError

    def format(self, value: Any) -> str:
        """The text of a value; `parse` gives it back."""
        raise NotImplementedError

    def draw(self, source: Source, supports: Supports) -> Any:
        """A random value of a case with the modifier."""
        raise NotImplementedError

    def simpler(self, value: Any) -> Iterator[Any]:
        """Simpler values of a case with the modifier, boldest first."""
        yield from ()

    def of(self, case: Case) -> Any:
        """The value in `case`."""
        return getattr(case.logits if self.section else case, self.name)

    def setting(self, case: Case, value: Any) -> dict[str, Any]:
        """What to replace in `case` so that it has this value."""
        return {"logits": replace(case.logits, **{self.name: value})} if self.section else {self.name: value}
