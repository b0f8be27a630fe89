"""Functions of libdevice in the interpreter, which has none of them: as NumPy computes them, in the type of their operand."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
from triton.language import extra

from flashverify.interpreter.blocks import plain
from flashverify.interpreter.hooks import builder, stock, tl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["device_functions"]

_MODULES = ("libdevice", "cuda.libdevice", "hip.libdevice")
_WAITS = ("gdc_wait", "gdc_launch_dependents")
"""What orders launches that overlap; launches of the interpreter do not."""


def _rounded(x: Any) -> Any:
    """To the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return np.copysign(np.abs(whole) + (np.abs(x - whole) >= 0.5), x).astype(x.dtype, copy=False)


_UNARY: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("tanh", "sinh", "cosh", "tan", "sin", "cos", "expm1", "log1p", "log10")},
    **{
        name: getattr(np, name)
        for name in ("exp", "exp2", "log", "log2", "sqrt", "cbrt", "floor", "ceil", "trunc", "rint")
    },
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "abs": np.abs,
    "fabs": np.abs,
    "nearbyint": np.rint,
    "round": _rounded,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "fast_expf": np.exp,
    "fast_exp10f": lambda x: np.power(x.dtype.type(10), x),
    "fast_logf": np.log,
    "fast_log2f": np.log2,
    "fast_log10f": np.log10,
    "fast_tanhf": np.tanh,
    "fast_sinf": np.sin,
    "fast_cosf": np.cos,
}
_BINARY: dict[str, Any] = {
    "pow": np.power,
    "fast_powf": np.power,
    "fast_dividef": np.divide,
    "div_rn": np.divide,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "fmod": np.fmod,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "copysign": np.copysign,
}
_TESTS: dict[str, Any] = {"isnan": np.isnan, "isinf": np.isinf, "finitef": np.isfinite, "isfinited": np.isfinite}


def _tensor(value: Any) -> Any:
    return stock.interpreter_semantic.to_tensor(plain(value))


def _of_one(function: Any) -> Callable[[Any], Any]:
    def call(arg0: Any) -> Any:
        x = _tensor(arg0)
        return tl.core.tensor(builder().unary_op(x.handle, function), x.type)

    return call


def _of_two(function: Any) -> Callable[[Any, Any], Any]:
    def call(arg0: Any, arg1: Any) -> Any:
        x, y = tl.broadcast(_tensor(arg0), _tensor(arg1))
        return tl.core.tensor(builder().binary_op(x.handle, y.handle, function), x.type)

    return call


def _test(function: Any) -> Callable[[Any], Any]:
    def call(arg0: Any) -> Any:
        x = _tensor(arg0)
        found = builder().binary_op(x.handle, x.handle, lambda value, _: function(value))
        kind = tl.core.block_type(tl.int1, x.type.shape) if x.type.is_block() else tl.int1
        found.dtype = tl.int1
        return tl.core.tensor(found, kind)

    return call


def _nothing(*_: Any, **__: Any) -> None:
    """No launch overlaps another one."""


def device_functions() -> Iterator[tuple[Any, str, Any]]:
    """What is replaced in `triton.language.extra`: (owner, name, value)."""
    made: dict[str, Any] = {name: _of_one(function) for name, function in _UNARY.items()}
    made |= {name: _of_two(function) for name, function in _BINARY.items()}
    made |= {name: _test(function) for name, function in _TESTS.items()}
    for path in _MODULES:
        for owner in _modules(path):
            yield from ((owner, name, value) for name, value in made.items() if hasattr(owner, name))
    for path in ("cuda", "cuda.gdc"):
        for owner in _modules(path):
            yield from ((owner, name, _nothing) for name in _WAITS if hasattr(owner, name))


def _modules(path: str) -> list[Any]:
    """The modules of a name in `triton.language.extra`: the one that is imported, and the one that is its attribute, which may be another."""
    found: list[Any] = []
    with contextlib.suppress(ImportError):
        found.append(importlib.import_module(f"triton.language.extra.{path}"))
    attribute: Any = extra
    for part in path.split("."):
        attribute = getattr(attribute, part, None)
    return found if attribute is None or attribute in found else [*found, attribute]
