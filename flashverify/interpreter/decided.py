"""Calls that decide by the value of one of their own scalars, such as the end of a loop: one tape for each value."""

from __future__ import annotations

from typing import Any

__all__ = ["Decided", "value_of"]

_VALUES = 8
"""Different values after which a call is not recorded any more: it decides by what always changes."""


class Decided:
    """What stands in place of the tape of a call that decides by scalars among its inputs.

    Attributes:
        numbers: of these inputs, ascending.

    Args:
        numbers: likewise.
    """

    __slots__ = ("_kept", "numbers")

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.numbers = numbers
        self._kept = 0

    def also(self, numbers: tuple[int, ...]) -> Decided:
        """The same for a call that was seen to decide by these inputs too."""
        more = tuple(sorted({*self.numbers, *numbers}))
        if more == self.numbers:
            return self
        made = Decided(more)
        made._kept = self._kept
        return made

    def key(self, key: Any, inputs: list[Any]) -> Any:
        """The key of the tape for these inputs; None where programs decide differently.

        Args:
            key: of the call, whatever the values.
            inputs: its tensors.
        """
        values = tuple([value_of(inputs[number].handle) for number in self.numbers])
        return None if None in values else (key, self.numbers, values)

    def another(self) -> bool:
        """Whether there is room for the tape of one more value."""
        self._kept += 1
        return self._kept <= _VALUES


def value_of(held: Any) -> int | bool | None:
    """The integer that a handle holds in every program; None where programs differ, and of anything else."""
    data = held.data
    if data.dtype.kind not in "iub" or data.size != data.shape[0]:
        return None
    first = data.flat[0]
    if data.size > 1 and not (data == first).all():
        return None
    value: int | bool = first.item()
    return value
