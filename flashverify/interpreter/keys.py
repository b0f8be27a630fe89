"""What a call of Triton's language depends on besides the elements of its tensors: their types, and every constant."""

from __future__ import annotations

import contextlib
import itertools
from types import FunctionType
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.blocks import Descriptor
from flashverify.interpreter.hooks import stock, tl

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["form_of", "hold", "key_of", "named_tuple", "token_of"]

_TENSOR, _CONSTEXPR, _TUPLE = tl.core.tensor, tl.core.constexpr, tl.core.tuple
_EXACT = frozenset({int, bool, str, type(None)})
"""Constants whose equality within one class is identity of meaning; for floats it is not: 0.0 == -0.0."""
_SEQUENCES = frozenset({tuple, list})
_SLICES = frozenset({slice, tl.core.slice})
_TYPES = frozenset({tl.core.dtype, tl.core.block_type, tl.core.pointer_type})
_FUNCTIONS = frozenset({FunctionType, getattr(stock, "InterpretedFunction", None)})

_tokens: dict[Any, int] = {}
_NAMED: set[type] = set()
"""Classes of tuples with names that were met; other classes are in `_OTHERS`."""
_OTHERS: set[type] = set()
_forms: dict[Any, int] = {}
_numbers = itertools.count()
_held: dict[int, tuple[Any, int, list[Any]]] = {}
"""By identity, the tuples with names that a launch got, each with the number of its form and the tensors in it."""
_FORMS = 1 << 14


def _type_token(kind: Any) -> int:
    """A number for each type, remembered on it; equal types have equal numbers, others never do."""
    token: int | None = kind.__dict__.get("token")
    if token is not None:
        return token
    if kind.__class__ is tl.core.block_type:
        key: Any = (_type_token(kind.element_ty), tuple(kind.shape))
    elif kind.__class__ is tl.core.pointer_type:
        key = ("pointer", _type_token(kind.element_ty), kind.address_space, kind.const)
    elif kind.__class__ is tl.core.dtype:
        key = kind.name
    else:
        raise KeyError(kind)
    token = kind.token = _tokens.setdefault(key, len(_tokens))
    return token


def token_of(tensor: Any) -> int:
    """The number of a tensor's type, remembered on the tensor."""
    token: int | None = tensor.__dict__.get("token")
    if token is None:
        token = tensor.token = _type_token(tensor.type)
    return token


class _NoInputs(list[Any]):
    def append(self, value: Any) -> None:
        raise KeyError(value)


_no_inputs = _NoInputs()


def form_of(value: Any, inputs: list[Any]) -> int:
    """A number for what a tuple with names holds besides the elements of its tensors: the same for the same alone."""
    found = _held.get(id(value))
    if found is not None:
        inputs += found[2]
        return found[1]
    parts: list[Any] = [value.__class__]
    _append(parts, value, inputs)
    key = tuple(parts)
    number = _forms.get(key)
    if number is None:
        if len(_forms) >= _FORMS:
            _forms.clear()
        number = _forms[key] = next(_numbers)
    return number


def hold(values: Iterable[Any], known: dict[int, tuple[Any, int, list[Any]]] | None = None) -> None:
    """Know the forms of the tuples with names among the arguments of a launch, until told of others; they do not change meanwhile.

    Args:
        values: the arguments whose forms have to be told.
        known: those of others, as they are kept.
    """
    _held.clear()
    _held.update(known or {})
    _hold(values)


def _hold(values: Iterable[Any]) -> None:
    for value in values:
        if named_tuple(value.__class__):
            _hold(value)
            inputs: list[Any] = []
            with contextlib.suppress(KeyError):
                _held[id(value)] = (value, form_of(value, inputs), inputs)


def _append(parts: list[Any], values: Iterable[Any], inputs: list[Any]) -> None:
    for value in values:
        kind = value.__class__
        if kind is _TENSOR:
            inputs.append(value)
            token = value.__dict__.get("token")
            parts.append(token_of(value) if token is None else token)
        elif kind in _EXACT:
            parts += (kind, value)
        elif kind in _NAMED:
            parts += (kind, form_of(value, inputs))
        elif kind is _CONSTEXPR:
            held = value.value
            if held.__class__ in _EXACT:
                parts += (kind, held.__class__, held)
            else:
                parts.append(kind)
                _append(parts, (held,), _no_inputs)
        elif kind is float and value == value:
            parts += (kind, value.hex())
        elif kind in _TYPES:
            parts += (kind, _type_token(value))
        elif kind in _SEQUENCES:
            parts += (kind, len(value))
            _append(parts, value, inputs)
        elif kind is _TUPLE:
            parts += (kind, len(value), tuple(getattr(value.type, "fields", None) or ()))
            _append(parts, value, inputs)
        elif kind in _SLICES:
            parts.append(kind)
            if value.start is value.stop is value.step is None:
                parts.append(None)
            else:
                _append(parts, (value.start, value.stop, value.step), _no_inputs)
        elif kind in _FUNCTIONS:
            parts += (value, kind)
        elif kind is Descriptor:
            parts += (kind, value.constants)
            _append(parts, value.tensors, inputs)
        elif named_tuple(kind):
            parts += (kind, form_of(value, inputs))
        else:
            raise KeyError(value)


def named_tuple(kind: type) -> bool:
    """Whether a class is of tuples with names."""
    if kind in _NAMED:
        return True
    if kind in _OTHERS:
        return False
    found = issubclass(kind, tuple) and hasattr(kind, "_fields")
    (_NAMED if found else _OTHERS).add(kind)
    return found


def key_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[Any]) -> Any:
    """What decides which operations a call makes; None where that cannot be told.

    Args:
        function: a number or an object that stands for the function, the first part of the key; None where that is the first argument.
        args: its arguments.
        kwargs: likewise.
        inputs: takes the tensors among them, in order.
    """
    parts = [] if function is None else [function]
    try:
        if len(args) == 2 and args[0].__class__ is _TENSOR and args[1].__class__ is _TENSOR and not kwargs:
            one, other = args
            key = (function, one.__dict__.get("token") or token_of(one), other.__dict__.get("token") or token_of(other))
            inputs += args
            return key
        _append(parts, args, inputs)
        if kwargs:
            parts += kwargs
            _append(parts, kwargs.values(), inputs)
    except KeyError:
        return None
    return tuple(parts)
