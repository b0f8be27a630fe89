"""How the code of a tape calls its operands: slot n is the array `d{n}`, and `h{n}` the handle around it where there is one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.broadcasts import unmade, uses
from flashverify.interpreter.hooks import TensorHandle
from flashverify.interpreter.steps import Slot

if TYPE_CHECKING:
    from flashverify.interpreter.recording import Recording
    from flashverify.interpreter.steps import Step

__all__ = ["Operands", "slots_of"]


class Operands:
    """The operands of one recording.

    Args:
        recording: of a call.
        inputs: how many tensors it gets.
        results: slots that it gives back.
        names: that every code may use.
    """

    def __init__(self, recording: Recording, inputs: int, results: list[int], names: dict[str, Any]) -> None:
        self._recording, self._inputs, self._names = recording, inputs, dict(names)
        self._used = uses(recording, results)
        self._lazy = unmade(recording, self._used) if recording.plain else {}
        self._kinds: dict[int, tuple[str, bool]] = {n: (f"h{n}.dtype", False) for n in range(inputs)}

    def _constant(self, value: Any) -> str:
        if value is None or value is True or value is False or value.__class__ is int:
            return repr(value)
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def _held(self, source: Any) -> str:
        return f"h{source.number}" if isinstance(source, Slot) else self._constant(source.value)

    def _data(self, source: Any) -> str:
        """The array of an operand."""
        if not isinstance(source, Slot):
            return self._constant(source.value.data)
        of, rank = self._lazy.get(source.number, (source.number, 0))
        return f"d{of}" + (f".reshape(-1{', 1' * rank})" if rank else "")

    def _kind(self, source: Any, *, scalar: bool = True) -> tuple[str, bool]:
        """The type that the handle of an operand has, as code, and whether that is known to be no tile's; of its elements if `scalar`."""
        if isinstance(source, Slot):
            of, _ = self._lazy.get(source.number, (source.number, 0))
            code, single = self._kinds[of]
        else:
            code, single = self._constant(source.value.dtype), False
        return (code, single) if single or not scalar else (f"{code}.scalar", True)

    def _fixed(self, source: Any) -> Any:
        """The array of an operand that is the same at every replay, or None."""
        if not isinstance(source, Slot):
            return source.value.data if isinstance(source.value, TensorHandle) else None
        of, rank = self._lazy.get(source.number, (source.number, 0))
        return None if rank else self._names.get(f"d{of}")

    def _elements(self, source: Any) -> int:
        """Of the tile of an operand."""
        if not isinstance(source, Slot):
            return int(source.value.data[0].size)
        of, rank = self._lazy.get(source.number, (source.number, 0))
        return 1 if rank else math.prod(self._recording.shapes[of])

    def _shape(self, step: Step) -> tuple[int, ...]:
        """Of the tile that an operation makes."""
        return self._recording.shapes[step.outs[0]]

    def _dropped(self, step: Step) -> bool:
        """Whether nobody needs what an operation that is made here gives."""
        return step.outs[0] in self._lazy or step.outs[0] not in self._used

    def _given(self, shape: Any) -> str:
        kind = shape[0]
        if kind == "input":
            return f"a{shape[1]}"
        if kind == "tensor":
            return f"new({self._constant(shape[2])}, {self._held(shape[1])})"
        if kind == "tuple":
            return f"({''.join(self._given(x) + ', ' for x in shape[1])})"
        if kind == "named":
            return f"{self._constant(shape[2])}({', '.join(map(self._given, shape[1]))})"
        return self._constant(shape[1])


def slots_of(shape: Any) -> list[int]:
    """The slots that a result holds."""
    if shape[0] in ("tuple", "named"):
        return [n for x in shape[1] for n in slots_of(x)]
    return [shape[1].number] if shape[0] == "tensor" and isinstance(shape[1], Slot) else []
