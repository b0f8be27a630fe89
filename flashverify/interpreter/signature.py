"""What a kernel declares about its parameters."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from triton.runtime.jit import _normalize_ty

from flashverify.interpreter.hooks import tl
from flashverify.interpreter.layer import field_name, fields_of

if TYPE_CHECKING:
    from flashverify.interpreter.records import Record

__all__ = ["Signature"]

_SCALARS = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64"}


class Signature:
    """The parameters of a kernel.

    Args:
        fn: its function.

    Attributes:
        names: of the parameters.
        order: the same in order; None where some cannot be passed by position alone.
        defaults: by name.
        constexprs: names of those that are constants.
        types: that scalars declare, by name.
        integers: arguments that were made, by name and value.
        records: likewise tuples with names, by name and `records.contents`.
        fields: names of what a tuple holds, by the name and the class of the tuple and how much it holds.
    """

    def __init__(self, fn: Any) -> None:
        spec = inspect.getfullargspec(fn)
        self.names = set(spec.args)
        self.defaults = dict(zip(reversed(spec.args), reversed(spec.defaults or ()), strict=False))
        self.order = None if spec.varargs or spec.varkw or spec.kwonlyargs else spec.args
        declared = {name: _normalize_ty(annotation) for name, annotation in fn.__annotations__.items()}
        self.constexprs = {name for name, kind in declared.items() if kind == "constexpr"}
        self.types = {name: tl.str_to_ty(kind, None) for name, kind in declared.items() if kind in _SCALARS}
        for name, annotation in fn.__annotations__.items():
            self.types |= _declared_fields(name, _meant(annotation, fn.__globals__))
        self.integers: dict[tuple[str, int], Any] = {}
        self.records: dict[tuple[Any, ...], Record] = {}
        self.fields: dict[tuple[str, type, int], tuple[str, ...]] = {}

    def fields_of(self, name: str, value: tuple[Any, ...]) -> tuple[str, ...]:
        """The names of the leaves of a tuple that the parameter `name` gets, in order."""
        key = (name, value.__class__, len(value))
        found = self.fields.get(key)
        if found is None:
            found = self.fields[key] = tuple(field_name(name, field) for field, _ in fields_of(value))
        return found

    def bound(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name, in the order of the parameters; a wrong call raises what calling `fn` would."""
        if self.order is not None and not args:
            given = {**self.defaults, **kwargs}
            if len(given) == len(self.order):
                return {name: given[name] for name in self.order}
        return inspect.getcallargs(fn, *args, **kwargs)


def _meant(annotation: Any, names: dict[str, Any]) -> Any:
    """What a parameter is annotated with: Triton compiles the source anew, and annotations are text then."""
    if not isinstance(annotation, str):
        return annotation
    first, *rest = annotation.split(".")
    return functools.reduce(lambda found, part: getattr(found, part, None), rest, names.get(first))


def _declared_fields(name: str, annotation: Any) -> dict[str, Any]:
    """The types that the fields of a parameter declare, where its annotation is a class of tuples with names."""
    found: dict[str, Any] = {}
    if isinstance(annotation, type) and hasattr(annotation, "_fields"):
        for field, kind in getattr(annotation, "__annotations__", {}).items():
            path = field_name(name, field)
            found |= {path: kind} if isinstance(kind, tl.dtype) else _declared_fields(path, kind)
    return found
