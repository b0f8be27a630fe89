"""What a recorded call is made of: operations, and where their operands come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Constant", "Slot", "Step"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A value of the recording, by number; the inputs come first."""

    number: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same at every replay."""

    value: Any


@dataclass(slots=True)
class Step:
    """One operation.

    Attributes:
        name: method of the builder.
        args: `Slot` or `Constant` each.
        kwargs: likewise.
        outs: numbers of the slots that it fills.
        several: whether it returns a tuple.
        ufunc: what it applies to its operands, where that is all that it does.
        place: innermost line of source, where that may matter.
        size: bytes that a pointer operand moves by.
        astype: the type that it converts to, where NumPy's conversion is the right one.
        settled: whether NumPy's result has the type that it must have; of pointers, whether their offsets have 8 bytes.
    """

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    outs: list[int]
    several: bool
    ufunc: Any = None
    place: tuple[str, int] | None = None
    size: int = 0
    astype: Any = None
    settled: bool = False
