"""What a name of a kernel holds, for some of its programs and put together again for all."""

from __future__ import annotations

import operator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from flashverify.interpreter.blocks import Descriptor
from flashverify.interpreter.hooks import handle, stock, tl
from flashverify.interpreter.keys import named_tuple, token_of

__all__ = ["MISSING", "CannotError", "part", "whole"]

_TENSOR, _TUPLE = tl.core.tensor, tl.core.tuple
_FIXED = (
    *(int, float, bool, str, type(None), type, FunctionType, ModuleType),
    *(tl.core.dtype, tl.core.constexpr, stock.InterpretedFunction),
)


class _Missing:
    """The value of a name that some programs have not assigned to: whoever asks it for anything gets an error."""

    def __bool__(self) -> bool:
        raise NameError("a name that is assigned to in a loop alone")


MISSING = _Missing()


class CannotError(Exception):
    """A name holds something that cannot be parted."""


def part(value: Any, kept: Any, programs: int) -> Any:
    """A value for some of the programs that it is of: itself where it is the same in all.

    Raises:
        CannotError: it holds something that is not known.
    """
    kind = value.__class__
    if kind is _TENSOR:
        data = value.handle.data
        if data.shape[0] == 1:
            return value
        if data.shape[0] != programs:
            raise CannotError
        return _with_data(value, data[kept])
    if kind is _TUPLE:
        parts = [part(x, kept, programs) for x in value.values]
        return value if all(map(operator.is_, parts, value.values)) else _TUPLE(parts, value.type)
    if kind is tuple or named_tuple(kind):
        parts = [part(x, kept, programs) for x in value]
        if all(map(operator.is_, parts, value)):
            return value
        return tuple(parts) if kind is tuple else kind(*parts)
    if kind is Descriptor:
        return value.over([part(x, kept, programs) for x in value.tensors])
    if kind is _Missing or isinstance(value, _FIXED):
        return value
    raise CannotError


def _with_data(value: Any, data: Any) -> Any:
    made = object.__new__(_TENSOR)
    made.__dict__.update(value.__dict__)
    made.handle = handle(data, value.handle.dtype)
    return made


def whole(parts: list[tuple[Any, Any, Any]], programs: int) -> Any:
    """One value for all programs.

    Args:
        parts: of programs, their rows in a value, and the value.
        programs: how many there are.

    Raises:
        CannotError: the values have no common type, or one is not known.
    """
    first = parts[0][2]
    kind = first.__class__
    if all(value is first for _, _, value in parts):
        if kind is _TENSOR and first.handle.data.shape[0] != 1:
            raise CannotError
        return first
    if any(value.__class__ is _Missing for _, _, value in parts):
        return MISSING
    if any(value.__class__ is not kind for _, _, value in parts):
        raise CannotError
    if kind is _TENSOR:
        return _joined(first, parts, programs)
    if kind is tuple or named_tuple(kind):
        if any(len(value) != len(first) for _, _, value in parts):
            raise CannotError
        made = [whole([(at, rows, value[n]) for at, rows, value in parts], programs) for n in range(len(first))]
        return tuple(made) if kind is tuple else kind(*made)
    if kind in (int, bool, str) and all(value == first for _, _, value in parts):
        return first
    raise CannotError


def _joined(first: Any, parts: list[tuple[Any, Any, Any]], programs: int) -> Any:
    held, tag = first.handle, getattr(first.handle.dtype, "argument", None)
    data = np.empty((programs, *held.data.shape[1:]), held.data.dtype)
    for at, rows, value in parts:
        own = value.handle.data
        if (
            own.dtype != data.dtype
            or own.shape[1:] != data.shape[1:]
            or token_of(value) != token_of(first)
            or getattr(value.handle.dtype, "argument", None) is not tag
        ):
            raise CannotError
        data[at] = own if own.shape[0] == 1 else own[rows]
    return _with_data(first, data)
