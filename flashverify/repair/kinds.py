"""Of what kind the values of names are, so that one may stand in place of another."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["floats_of", "kind_of", "kinds_of", "likeness", "shape_of"]

_MOST = 40
"""Fields that are looked at, per tuple with names or dataclass."""


def kinds_of(frame: FrameType) -> dict[str, str]:
    """By name of a local, of a global that the code reads, and of a field of a tuple with names or of a dataclass, the kind of its value.

    Kinds are `int`, `bool`, `float`, `dtype`, and of tensors `int[16]`, `float[16, 32]` and so on; a constant of Triton's, and a tensor
    without dimensions, is like the number that it holds. What is of no such kind is left out.
    """
    found: dict[str, str] = {}
    read = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
    for name, value in (read | frame.f_locals).items():
        if kind := kind_of(value):
            found[name] = kind
        for inner in _fields(value)[:_MOST]:
            if kind := kind_of(getattr(value, inner, None)):
                found[f"{name}.{inner}"] = kind
    return found


def _fields(value: Any) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return tuple(getattr(value, "_fields", ()))
    return tuple(getattr(type(value), "__dataclass_fields__", ()))


def floats_of(names: dict[str, Any]) -> dict[str, str]:
    """The kinds of those names of a module that are a float: constants of its formulas."""
    return {name: "float" for name, value in names.items() if name.isidentifier() and kind_of(value) == "float"}


def shape_of(kind: str) -> tuple[int, ...] | None:
    """The shape of a tensor's kind; None where that is another."""
    _, bracket, inside = kind.partition("[")
    return tuple(int(size) for size in inside[:-1].split(", ")) if bracket else None


@lru_cache(1 << 16)
def likeness(one: str, other: str) -> float:
    """How alike two names are spelled, from 0 to 1."""
    return SequenceMatcher(None, one, other).ratio()


def kind_of(value: Any) -> str:
    """The kind of a value, as `kinds_of` has it; empty where it is of none."""
    if type(value).__name__ == "constexpr":
        value = value.value
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return type(value).__name__
    if isinstance(value, torch.Tensor):
        return _tensor(str(value.dtype).removeprefix("torch."), tuple(value.shape))
    if type(value).__module__.startswith("triton.language") and type(value).__name__ == "tensor":
        kind = value.dtype
        if kind.is_ptr():
            return _sized("pointer", _sizes(value))
        return _tensor(str(kind), _sizes(value))
    if isinstance(value, torch.dtype):
        return "dtype"
    return ""


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in value.shape)


def _tensor(dtype: str, shape: tuple[int, ...]) -> str:
    name = "bool" if dtype in ("int1", "bool") else "int" if dtype.startswith(("int", "uint", "i", "u")) else "float"
    return _sized(name, shape)


def _sized(name: str, shape: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, shape))}]" if shape else name
