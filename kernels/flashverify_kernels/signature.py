"""What the compiler is told of the arguments of a kernel, from what the kernel declares and what is given."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl

from flashverify_kernels.device.jit import SCALARS, is_record

_ELEMENT = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}
_INT32_TABLES = ("q_lengths_ptr", "k_lengths_ptr")
_ELEMENTS = ("dpart_ptr",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the compiler is given.

    Attributes:
        fn: the kernel.
        signature: type by parameter, a record of types for a record, `constexpr` for a constant.
        constants: value by the path of a constant, such as `BLOCK_M` or `terms.sink`; None for what is absent.
        options: launch options.
    """

    fn: Any
    signature: dict[str, Any]
    constants: dict[str, Any]
    options: dict[str, Any]

    def paths(self) -> dict[tuple[int, ...], Any]:
        """The constants by place: the number of the parameter, then those of the fields."""
        found: dict[tuple[int, ...], Any] = {}

        def walk(kind: Any, name: str, place: tuple[int, ...]) -> None:
            if isinstance(kind, tuple):
                for n, (field, inner) in enumerate(kind._asdict().items()):  # type: ignore[attr-defined]
                    walk(inner, f"{name}.{field}", (*place, n))
            elif kind == "constexpr":
                found[place] = self.constants[name]

        for n, (name, kind) in enumerate(self.signature.items()):
            walk(kind, name, (n,))
        return found


def source_of(
    fn: Any,
    constants: dict[str, Any],
    options: dict[str, Any],
    given: Callable[[str], bool],
    dtype: torch.dtype,
    elements: dict[str, torch.dtype] | None = None,
    tiles: dict[str, tuple[int, int]] | None = None,
) -> Source:
    """The source of a launch.

    Args:
        fn: the kernel.
        constants: value by constexpr parameter, and others.
        options: launch options.
        given: whether an optional argument is there, by path.
        dtype: of q.
        elements: other dtypes, by path.
        tiles: rows and channels of the tiles of the descriptors that are given.
    """
    values: dict[str, Any] = {}

    def walk(path: str, kind: Any) -> Any:
        if is_record(kind):
            return kind(*(walk(f"{path}.{name}", inner) for name, inner in kind.__annotations__.items()))
        if kind is tl.constexpr:
            values[path] = constants[path]
            return "constexpr"
        if isinstance(kind, tl.dtype):
            return SCALARS[kind.name]
        if tiles and path in tiles:
            return f"tensordesc<{_ELEMENT[dtype][1:]}{[1, 1, *tiles[path]]}>"
        if not given(path):
            values[path] = None
            return "constexpr"
        (declared,) = getattr(kind, "__metadata__", (_flat(path),))
        return _ELEMENT[(elements or {}).get(path, dtype)] if declared == "elements" else declared

    parameters = inspect.signature(fn.fn).parameters
    signature = {name: walk(name, parameter.annotation) for name, parameter in parameters.items()}
    return Source(fn=fn, signature=signature, constants=values, options=options)


def _flat(name: str) -> str:
    """The type of a parameter without a declaration: tables and statistics are fp32, and so are factors."""
    if name in _INT32_TABLES:
        return "*i32"
    if name in _ELEMENTS:
        return "elements"
    return "*fp32" if name.endswith("_ptr") else "fp32"
