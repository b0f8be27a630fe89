"""The code of a recorded call: its operations on bare arrays, with handles around those alone that leave it or that the builder asks for."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.interpreter.formats import numpy_dtype
from flashverify.interpreter.hooks import TensorHandle, handle, tl
from flashverify.interpreter.late import Outer, Spread, first_of_range, spread
from flashverify.interpreter.layer import TooLarge
from flashverify.interpreter.memory import Replayed
from flashverify.interpreter.recording import CASTS
from flashverify.interpreter.steps import Slot, Step
from flashverify.interpreter.tape_operands import Operands, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from flashverify.interpreter.recording import Recording

__all__ = ["compiled", "new_tensor"]

_TENSOR = tl.core.tensor
_FILENAME = str(Path(__file__).with_name("tape"))
_FOLDED = 1 << 12
"""Elements of a constant that is kept."""
_REMEMBERED = 1 << 13
"""Sources whose code is kept: calls of other constants often have the same."""


def new_tensor(template: dict[str, Any], held: Any) -> Any:
    """A tensor with the attributes of a template around a handle."""
    made = object.__new__(_TENSOR)
    made.__dict__ = {**template, "handle": held}
    return made


def _cast(output: Any, x: Any, kind: Any) -> Any:
    """The result of a ufunc in the type of its first operand, as `Numerics.binary_op` has it."""
    return output if output.dtype == x.dtype or output.dtype == bool else output.astype(numpy_dtype(kind))


_NAMES: dict[str, Any] = {
    "handle": handle,
    "new": new_tensor,
    "cast": _cast,
    "where": np.where,
    "spread": spread,
    "Spread": Spread,
    "Outer": Outer,
    "U8": np.uint64,
    "Replayed": Replayed,
    "TooLarge": TooLarge,
}


def compiled(recording: Recording, inputs: int, result: Any) -> Callable[..., Any]:
    """A function of the builder and the input tensors that repeats the call.

    Args:
        recording: of the call.
        inputs: how many tensors it gets.
        result: what it gives back, see `Tape`.
    """
    return _Writer(recording, inputs, result).function()


@functools.lru_cache(_REMEMBERED)
def _code(source: str) -> CodeType:
    return compile(source, _FILENAME, "exec")


class _Writer(Operands):
    """Writes one function."""

    def __init__(self, recording: Recording, inputs: int, result: Any) -> None:
        super().__init__(recording, inputs, slots_of(result), _NAMES)
        self._result = result
        self._looked = {
            self._lazy.get(x.number, (x.number, 0))[0]
            for step in recording.steps
            if self._array(step) is not None and not self._dropped(step)
            for x in step.args
            if isinstance(x, Slot)
        }
        self._handles = set(slots_of(result)).union(
            *({x.number for x in (*s.args, *s.kwargs.values()) if isinstance(x, Slot)} for s in self._calls())
        )

    def _calls(self) -> list[Step]:
        """The steps that the builder makes."""
        return [step for step in self._recording.steps if self._array(step) is None]

    def function(self) -> Callable[..., Any]:
        """The function."""
        lines = []
        for n in range(self._inputs):
            if n in self._used:
                lines.append(f"h{n} = a{n}.handle")
            if n in self._looked:
                lines.append(f"d{n} = h{n}.data")
        most = self._recording.elements
        if most > 1:
            lines += [
                f"if len(b.programs) * {most} > b.limit and len(b.programs) > 1: raise TooLarge({most})",
            ]
        for step in self._recording.steps:
            lines += self._lines(step)
        lines.append(f"return {self._given(self._result)}")
        head = ", ".join(["b", *(f"a{n}" for n in range(self._inputs))])
        exec(_code(f"def replay({head}):\n" + "".join(f"    {line}\n" for line in lines)), self._names)
        found: Callable[..., Any] = self._names["replay"]
        return found

    # --- operations -------------------------------------------------------------------------------------------------

    def _array(self, step: Step) -> str | None:
        """How an operation is made: `ufunc`, the name of one that is made here, or None where the builder makes it."""
        if not self._recording.plain:
            return None
        if step.ufunc is not None:
            return "ufunc"
        if step.kwargs:
            return None
        if step.name in CASTS:
            return "cast" if step.astype is not None else None
        return step.name if step.name in _WRITTEN else None

    def _folded(self, step: Step, data: str) -> bool:
        """Whether an operation is made once and for all, because every operand is the same at every replay."""
        tensors = [x for x in step.args if isinstance(x, Slot) or isinstance(x.value, TensorHandle)]
        if math.prod(self._shape(step)) > _FOLDED or any(self._fixed(x) is None for x in tensors):
            return False
        if not step.settled and step.ufunc is not None and len(step.args) == 2:
            return False
        with np.errstate(all="ignore"):
            made = eval(data, self._names)
        self._names[f"d{step.outs[0]}"] = made
        return True

    def _late(self, step: Step) -> str | None:
        """A handle whose array is made when someone looks at it; None where that is no gain."""
        out = step.outs[0]
        if step.name in ("create_broadcast", "create_splat"):
            of = step.args[step.name == "create_splat"]
            self._kinds[out] = self._kind(of)
            rank, shape = len(self._shape(step)), self._constant(self._shape(step))
            data = part = self._data(of)
            if step.name == "create_splat":
                part = f"{data}.reshape(-1{', 1' * rank})"
            return f"Spread({part}, (len({data}), *{shape}), {self._kinds[out][0]})"
        if step.name == "create_addptr" and math.prod(self._shape(step)) > max(map(self._elements, step.args)):
            self._kinds[out] = self._kind(step.args[0], scalar=False)
            columns = first_of_range(self._fixed(step.args[1]))
            return f"Outer({', '.join(map(self._data, step.args))}, {step.size}, {self._kinds[out][0]}, {columns})"
        return None

    def _lines(self, step: Step) -> list[str]:
        how = self._array(step)
        if how is None:
            return self._call(step)
        out = step.outs[0]
        if self._dropped(step):
            self._kinds[out] = ("", True)
            return []
        if out not in self._looked and (late := self._late(step)) is not None:
            return [f"h{out} = {late}"]
        if how == "ufunc":
            data = f"{self._constant(step.ufunc)}({', '.join(map(self._data, step.args))})"
            self._kinds[out] = self._kind(step.args[0])
        elif how == "cast":
            data = self._data(step.args[0])
            data += "" if step.settled else f".astype({self._constant(step.astype)})"
            self._kinds[out] = (self._constant(step.args[1].value.scalar), True)
        else:
            data, self._kinds[out] = getattr(self, _WRITTEN[how])(step)
        lines = [] if self._folded(step, data) else [f"d{out} = {data}"]
        if how == "ufunc" and len(step.args) == 2 and not step.settled:
            lines.append(f"d{out} = cast(d{out}, {self._data(step.args[0])}, {self._kinds[out][0]})")
        if out in self._handles:
            lines.append(f"h{out} = handle(d{out}, {self._kinds[out][0]})")
        return lines

    def _addptr(self, step: Step) -> tuple[str, tuple[str, bool]]:
        pointer, offset = step.args
        data = self._data(offset)
        data += ".view(U8)" if step.settled else ".astype(U8)"
        if step.size != 1:
            data = f"{data} * {self._constant(np.uint64(step.size))}"
        return f"{self._data(pointer)} + {data}", self._kind(pointer, scalar=False)

    def _select(self, step: Step) -> tuple[str, tuple[str, bool]]:
        return f"where({', '.join(map(self._data, step.args))})", self._kind(step.args[2])

    def _expand_dims(self, step: Step) -> tuple[str, tuple[str, bool]]:
        axis = step.args[1].value
        at = f"...{', None' + ', :' * (-1 - axis)}" if axis < 0 else f":, {':, ' * axis}None"
        return f"{self._data(step.args[0])}[{at}]", self._kind(step.args[0])

    def _reshape(self, step: Step) -> tuple[str, tuple[str, bool]]:
        data, shape = self._data(step.args[0]), self._constant(self._shape(step))
        return f"{data}.reshape(len({data}), *{shape})", self._kind(step.args[0])

    def _broadcast(self, step: Step) -> tuple[str, tuple[str, bool]]:
        data, shape = self._data(step.args[0]), self._constant(self._shape(step))
        return f"spread({data}, (len({data}), *{shape}))", self._kind(step.args[0])

    def _splat(self, step: Step) -> tuple[str, tuple[str, bool]]:
        data, shape = self._data(step.args[1]), self._shape(step)
        tile = f"{data}.reshape(-1{', 1' * len(shape)})"
        return f"spread({tile}, (len({data}), *{self._constant(shape)}))", self._kind(step.args[1])

    def _call(self, step: Step) -> list[str]:
        operands = [self._held(x) for x in step.args]
        operands += [f"{name}={self._held(x)}" for name, x in step.kwargs.items()]
        call = f"b.{step.name}({', '.join(operands)})"
        if step.outs:
            call = f"{', '.join(f'h{n}' for n in step.outs)}{',' * step.several} = {call}"
        lines = [call]
        if step.place is not None:
            lines = [f"Replayed.at = {self._constant(step.place)}", call, "Replayed.at = None"]
        for n in step.outs:
            self._kinds[n] = (f"h{n}.dtype", False)
            if n in self._looked:
                lines.append(f"d{n} = h{n}.data")
        return lines


_WRITTEN = {
    "create_addptr": "_addptr",
    "create_select": "_select",
    "create_expand_dims": "_expand_dims",
    "create_reshape": "_reshape",
    "create_broadcast": "_broadcast",
    "create_splat": "_splat",
}
