"""The launches of the bundled kernels: every kernel, dtype, mask and term, at head dimensions of every tile width and one between."""

from __future__ import annotations

import importlib
import itertools
from typing import TYPE_CHECKING, Any

from flashverify.formats import DTYPES, FORMATS
from flashverify.subjects.launches import Argument, Descriptor, Launch, Pointer, Real, Record, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["bundled_launches", "launch_of"]

_KERNELS = ("forward", "dq", "dkdv")
_DTYPES = tuple(FORMATS[name].library for name in DTYPES)
_DIMS = ((16, 16), (64, 64), (128, 128), (72, 72), (192, 128), (256, 256), (64, 24))
_POINTEES = {name: FORMATS[name].library for name in DTYPES} | {"i32": "int32", "i64": "int64", "u8": "uint8"}


def bundled_launches(package: str) -> list[Launch]:
    """The launches of a kernel package of the shape of `flashverify_kernels`."""
    import torch

    aot = importlib.import_module(f"{package}.aot")
    found = []
    for kernel, variant, dtype, (d, dv) in _combinations(aot.VARIANTS):
        aligned = (
            d & (d - 1) == 0 and dv & (dv - 1) == 0
        )  # a width that is no power of two stands for rows that are not aligned
        source = aot.kernel_source(
            kernel, d=d, dv=dv, dtype=getattr(torch, dtype), dlse=not aligned, aligned=aligned, **aot.VARIANTS[variant]
        )
        label = f"{kernel} {dtype} d={d}" + (f"/{dv}" if dv != d else "") + (f" {variant}" if kernel != "delta" else "")
        found.append(launch_of(source, label))
    return found


def launch_of(source: Any, label: str) -> Launch:
    """A launch from what the kernel package says the compiler is given."""
    return Launch(
        label=label,
        module=source.fn.fn.__module__,
        kernel=source.fn.__name__,
        arguments={name: _argument(name, kind, source.constants) for name, kind in source.signature.items()},
        options=source.options,
    )


def _combinations(variants: Iterable[str]) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
    yield from itertools.product(_KERNELS, variants, _DTYPES, _DIMS)
    yield from itertools.product(("delta",), ("none",), _DTYPES, _DIMS)


def _argument(name: str, kind: Any, constants: dict[str, Any]) -> Argument:
    if isinstance(kind, tuple):
        fields = kind._asdict().items()  # type: ignore[attr-defined]
        inner = tuple(_argument(f"{name}.{field}", x, constants) for field, x in fields)
        return Record(type(kind).__module__, type(kind).__qualname__, inner)
    if kind == "constexpr":
        return Value(constants[name])
    if kind.startswith("tensordesc<"):
        element, block = kind.removeprefix("tensordesc<").removesuffix("]>").split("[")
        return Descriptor(_POINTEES[element], tuple(map(int, block.split(","))))
    if kind.startswith("*"):
        return Pointer(_POINTEES[kind[1:]])
    return Real((0.5).hex()) if kind == "fp32" else Value(7)
