"""Replaying a recorded call: its operations as straight code, without Triton's type promotion and wrapping in between."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.hooks import tl
from flashverify.interpreter.keys import named_tuple, token_of
from flashverify.interpreter.tape_code import compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.interpreter.recording import Recording

__all__ = ["OpaqueError", "Tape"]


class OpaqueError(Exception):
    """The call cannot be replayed."""


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
        self._result = self._described(result)
        self.run: Any = self._first
        recording._known.clear()
        recording._alive.clear()
        self._inputs, recording.inputs = len(recording.inputs), []

    def _first(self, b: Any, *inputs: Any) -> Any:
        self.run = compiled(self._recording, self._inputs, self._result)
        return self.run(b, *inputs)

    def _described(self, value: Any) -> Any:
        """The result with slots in place of tensors: ("tensor", slot, template), ("input", n), ("tuple", ...), ("named", ..., class) or a constant."""
        if value.__class__ is tl.core.tensor:
            for number, tensor in enumerate(self._recording.inputs):
                if tensor is value:
                    return "input", number
            source = self._recording.source(value.handle)
            if source is None:
                raise OpaqueError
            with contextlib.suppress(KeyError):
                token_of(value)  # is remembered on the tensor, and so in the template
            template = {name: x for name, x in value.__dict__.items() if name != "handle"}
            return "tensor", source, template
        if value.__class__ is tuple:
            return "tuple", tuple(self._described(x) for x in value)
        if named_tuple(value.__class__):
            return "named", tuple(self._described(x) for x in value), value.__class__
        if isinstance(value, (int, float, str, type(None), tl.core.dtype, tl.core.constexpr)):
            return "constant", value
        raise OpaqueError

    def run_within(self, b: Any, inputs: list[Any]) -> Any:
        """The same while other calls are recorded, which take its operations in."""
        kind, recordings = b.__class__, b.recordings
        b.__class__, b.recordings = kind.__bases__[1], ()
        try:
            result = self.run(b, *inputs)
        finally:
            b.__class__, b.recordings = kind, recordings
        given, made = [tensor.handle for tensor in inputs], list(_made(self._result, result))
        for recording in recordings:
            recording.splice(self._recording, given, made)
        return result


def _made(described: Any, result: Any) -> Iterator[tuple[Any, Any]]:
    """The handles of a result, each with its `Slot` or `Constant`."""
    if described[0] == "tensor":
        yield described[1], result.handle
    elif described[0] in ("tuple", "named"):
        for one, given in zip(described[1], result, strict=True):
            yield from _made(one, given)
