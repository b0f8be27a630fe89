"""Replaying a recorded call: its operations as straight code, without Triton's type promotion and wrapping in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flashverify.interpreter.broadcasts import unmade, uses
from flashverify.interpreter.formats import numpy_dtype
from flashverify.interpreter.hooks import TensorHandle, handle, tl
from flashverify.interpreter.keys import named_tuple
from flashverify.interpreter.layer import TooLarge
from flashverify.interpreter.memory import Replayed
from flashverify.interpreter.recording import CASTS, Recording, Slot, Step

__all__ = ["OpaqueError", "Tape"]

_FILENAME = str(Path(__file__).with_name("tape"))


class OpaqueError(Exception):
    """The call cannot be replayed."""


def _cast(output: Any, x: Any, held: Any) -> Any:
    """The result of a ufunc in the type of its first operand, as `Numerics.binary_op` has it."""
    return output if output.dtype == x.dtype or output.dtype == bool else output.astype(numpy_dtype(held.dtype))


def _offset(x: Any, size: Any) -> Any:
    """Bytes of offsets in elements."""
    return (x.view(np.uint64) if x.dtype.itemsize == 8 else x.astype(np.uint64)) * size


def _new(template: dict[str, Any], held: Any) -> Any:
    made = object.__new__(tl.core.tensor)
    made.__dict__.update(template)
    made.handle = held
    return made


class Tape:
    """A recorded call.

    Attributes:
        run: called with the builder and other tensors of the same types, it repeats the call.

    Args:
        recording: of it.
        result: what it returned: tensors of the recording and constants, in tuples or not.

    Raises:
        OpaqueError: it returned something else.
    """

    def __init__(self, recording: Recording, result: Any) -> None:
        self._recording = recording
        self._names: dict[str, Any] = {
            "handle": handle,
            "numpy_dtype": numpy_dtype,
            "new": _new,
            "cast": _cast,
            "where": np.where,
            "offset": _offset,
            "Replayed": Replayed,
            "TooLarge": TooLarge,
        }
        self._shape = self._described(result)
        self._used = uses(recording, self._slots(self._shape))
        self._lazy = unmade(recording, self._used) if recording.plain else {}
        self.run: Any = self._first
        recording._known.clear()
        recording._alive.clear()
        self._inputs, recording.inputs = len(recording.inputs), []

    def _first(self, b: Any, *inputs: Any) -> Any:
        self.run = self._compiled()
        return self.run(b, *inputs)

    # --- what is given back -----------------------------------------------------------------------------------------

    def _described(self, value: Any) -> Any:
        """The result with slots in place of tensors: ("tensor", slot, template), ("input", n), ("tuple", ...), ("named", ..., class) or a constant."""
        if value.__class__ is tl.core.tensor:
            for number, tensor in enumerate(self._recording.inputs):
                if tensor is value:
                    return "input", number
            source = self._recording.source(value.handle)
            if source is None:
                raise OpaqueError
            template = {name: x for name, x in value.__dict__.items() if name != "handle"}
            return "tensor", source, template
        if value.__class__ is tuple:
            return "tuple", tuple(self._described(x) for x in value)
        if named_tuple(value.__class__):
            return "named", tuple(self._described(x) for x in value), value.__class__
        if isinstance(value, (int, float, str, type(None), tl.core.dtype, tl.core.constexpr)):
            return "constant", value
        raise OpaqueError

    def _slots(self, shape: Any) -> list[int]:
        if shape[0] in ("tuple", "named"):
            return [n for x in shape[1] for n in self._slots(x)]
        return [shape[1].number] if shape[0] == "tensor" and isinstance(shape[1], Slot) else []

    # --- code -------------------------------------------------------------------------------------------------------

    def _constant(self, value: Any) -> str:
        if value is None or value is True or value is False or value.__class__ is int:
            return repr(value)
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def _held(self, source: Any) -> str:
        return f"h{source.number}" if isinstance(source, Slot) else self._constant(source.value)

    def _data(self, source: Any) -> tuple[str, str]:
        """(array, type object) of an operand."""
        if isinstance(source, Slot) and source.number in self._lazy:
            of, rank = self._lazy[source.number]
            shape = f".reshape(-1{', 1' * rank})" if rank else ""
            return f"h{of}.data{shape}", f"h{of}.dtype.scalar"
        held = self._held(source)
        return f"{held}.data", f"{held}.dtype"

    def _line(self, step: Step) -> list[str]:
        out = f"h{step.outs[0]}" if step.outs else "_"
        if step.outs and step.outs[0] in self._lazy:
            return []
        if self._recording.plain and step.ufunc is not None and len(step.args) == 2:
            (x, kind), (y, _) = (self._data(source) for source in step.args)
            op = self._constant(step.ufunc)
            return [
                f"x = {x}",
                f"d = {op}(x, {y})",
                f"{out} = handle(d, {kind}.scalar)",
                f"if d.dtype is not x.dtype: {out}.data = cast(d, x, {out})",
            ]
        if self._recording.plain and step.ufunc is not None:
            x, kind = self._data(step.args[0])
            return [f"{out} = handle({self._constant(step.ufunc)}({x}), {kind}.scalar)"]
        if step.name == "create_addptr" and self._recording.plain:
            (x, kind), (y, _) = (self._data(source) for source in step.args)
            return [f"{out} = handle({x} + offset({y}, {self._constant(np.uint64(step.size))}), {kind})"]
        if step.name == "create_select" and self._recording.plain:
            (x, _), (y, _), (z, kind) = (self._data(source) for source in step.args)
            return [f"{out} = handle(where({x}, {y}, {z}), {kind}.scalar)"]
        if step.name in CASTS and self._recording.plain and step.astype is not None:
            x, _ = self._data(step.args[0])
            target = self._constant(step.args[1].value.scalar)
            return [f"{out} = handle({x}.astype({self._constant(step.astype)}, copy=False), {target})"]
        operands = [self._held(x) for x in step.args]
        operands += [f"{name}={self._held(x)}" for name, x in step.kwargs.items()]
        call = f"b.{step.name}({', '.join(operands)})"
        if len(step.outs) > 1 or step.several:
            call = f"{', '.join(f'h{n}' for n in step.outs)}, = {call}"
        elif step.outs:
            call = f"{out} = {call}"
        if step.place is None:
            return [call]
        return [f"Replayed.at = {self._constant(step.place)}", call, "Replayed.at = None"]

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

    def _compiled(self) -> Any:
        recording = self._recording
        lines = []
        for n in range(self._inputs):
            if n in self._used:
                lines.append(f"h{n} = a{n}.handle")
        if recording.elements > 1:
            lines += [
                f"n = len(b.programs) * {recording.elements}",
                f"if n > b.limit and len(b.programs) > 1: raise TooLarge({recording.elements})",
            ]
        for step in recording.steps:
            lines += self._line(step)
        lines.append(f"return {self._given(self._shape)}")
        head = ", ".join(["b", *(f"a{n}" for n in range(self._inputs))])
        source = f"def replay({head}):\n" + "".join(f"    {line}\n" for line in lines)
        exec(compile(source, _FILENAME, "exec"), self._names)
        return self._names["replay"]

    # --- under another recording ------------------------------------------------------------------------------------

    def stepwise(self, b: Any, inputs: list[Any]) -> Any:
        """The same, operation by operation through the builder."""
        held: list[Any] = [None] * len(self._recording.shapes)
        held[: len(inputs)] = [tensor.handle for tensor in inputs]

        def value(source: Any) -> Any:
            if isinstance(source, Slot):
                return held[source.number]
            if isinstance(source.value, TensorHandle):
                for recording in b.recordings:
                    recording.adopt(source.value)
            return source.value

        for step in self._recording.steps:
            before, Replayed.at = Replayed.at, step.place or Replayed.at
            out = getattr(b, step.name)(*map(value, step.args), **{k: value(x) for k, x in step.kwargs.items()})
            Replayed.at = before
            for number, made in zip(step.outs, out if step.several else (out,), strict=False):
                held[number] = made

        def given(shape: Any) -> Any:
            kind = shape[0]
            if kind == "tuple":
                return tuple(given(x) for x in shape[1])
            if kind == "named":
                return shape[2](*(given(x) for x in shape[1]))
            if kind == "tensor":
                return _new(shape[2], value(shape[1]))
            return inputs[shape[1]] if kind == "input" else shape[1]

        return given(self._shape)
