"""What a session replaces in `triton.language`: reductions, decisions on tensors, and slow constructors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.interpreter.hooks import builder, handle, stock, tl
from flashverify.interpreter.layer import Diverged, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["memoised", "replacements"]

_MISSING = object()


def _combines(names: dict[str, str]) -> dict[int, str]:
    """Which of Triton's combining functions mean what, by identity; versions differ in which there are."""
    found = ((getattr(tl.standard, name, None), kind) for name, kind in names.items())
    return {id(function): kind for function, kind in found if function is not None}


_REDUCTIONS = _combines(
    {
        "_sum_combine": "sum",
        "_elementwise_max": "max",
        "_elementwise_min": "min",
        "_xor_combine": "xor",
        "_or_combine": "or",
    }
)
_ARGUMENTS = _combines({"_argmax_combine_tie_break_left": "argmax", "_argmin_combine_tie_break_left": "argmin"})
_PREFIXES = _combines({"_sum_combine": "sum", "_prod_combine": "prod"})


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.core.constexpr) else value


def _inputs(source: Any, axis: Any) -> tuple[Any, ...]:
    """The tensors to reduce, checked as Triton's own interpreter does."""
    inputs = (source,) if isinstance(source, tl.core.tensor) else tuple(source)
    for tensor in inputs:
        if not isinstance(tensor, tl.core.tensor):
            raise ValueError(f"input must be a tensor, got {type(tensor)}")
        if axis is not None and not -len(tensor.shape) <= axis < len(tensor.shape):
            raise ValueError(f"axis {axis} out of bounds for shape {tensor.shape}")
    return inputs


def _typed(made: Any, element: Any, shape: list[int]) -> Any:
    return tl.core.tensor(made, tl.core.block_type(element, shape) if shape else element)


def _reduce(source: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_options: Any) -> Any:
    axis, keep, combine_fn = _plain(axis), bool(_plain(keep_dims)), _plain(combine_fn)
    inputs = _inputs(source, axis)
    shape = [_plain(size) for size in inputs[0].shape]
    if axis is None:
        left = [1] * len(shape) if keep else []
    else:
        axis %= len(shape)
        left = [*shape[:axis], *([1] if keep else []), *shape[axis + 1 :]]
    kind = _REDUCTIONS.get(id(combine_fn))
    if kind is not None and len(inputs) == 1:
        total = _typed(builder().create_reduction(inputs[0].handle, kind, axis, keep), inputs[0].dtype, left)
        return total if isinstance(source, tl.core.tensor) else (total,)
    kind = _ARGUMENTS.get(id(combine_fn))
    if kind is not None and len(inputs) == 2 and axis is not None:
        value, index = builder().create_arg_reduction(inputs[0].handle, kind, axis, keep)
        return _typed(value, inputs[0].dtype, left), _typed(index, tl.int32, left)
    if builder().lockstep:
        raise Unsupported("a reduction with a function of its own")
    return stock.ReduceOps(axis, combine_fn, keep).apply(source)


def _scan(source: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_options: Any) -> Any:
    axis, backward, combine_fn = _plain(axis), bool(_plain(reverse)), _plain(combine_fn)
    inputs = _inputs(source, axis)
    kind = _PREFIXES.get(id(combine_fn))
    if kind is not None and len(inputs) == 1:
        made = builder().create_prefix(inputs[0].handle, kind, axis % len(inputs[0].shape), backward)
        scanned = tl.core.tensor(made, inputs[0].type)
        return scanned if isinstance(source, tl.core.tensor) else (scanned,)
    if builder().lockstep:
        raise Unsupported("a scan with a function of its own")
    return stock.ScanOps(axis, combine_fn, backward).apply(source)


def _decision(held: Any, data: Any) -> Any:
    """The one value of a scalar, agreed on by all programs.

    Args:
        held: its handle.
        data: what it holds, `[programs or 1]`.
    """
    for recording in builder().recordings:
        recording.decide(held)
    if data.size > 1 and not (data == data[0]).all():
        raise Diverged(data)
    return data[0]


_PRESENT = [False]
"""Whether Triton builds a load, where it asks of `other` and of `mask` only whether they are there."""


def _bool(tensor: Any) -> bool:
    if tensor.numel.value != 1 or _PRESENT[0]:
        return True  # Triton asks whether an optional tensor is there
    return bool(_decision(tensor.handle, tensor.handle.data.reshape(-1).astype(bool)))


def _building_loads(build: Any) -> Any:
    """A method that builds loads, in which a scalar `other=0` is there as any other is."""

    def load(*args: Any, **options: Any) -> Any:
        _PRESENT[0] = True
        try:
            return build(*args, **options)
        finally:
            _PRESENT[0] = False

    return load


def _index(tensor: Any) -> int:
    if tensor.numel.value != 1:
        raise TypeError(f"only a scalar can be converted to an index, got shape {tensor.shape}")
    return int(_decision(tensor.handle, tensor.handle.data.reshape(-1)))


def _transposed(tensor: Any) -> Any:
    shape = [_plain(size) for size in tensor.shape]
    shape[-1], shape[-2] = shape[-2], shape[-1]
    made = handle(np.swapaxes(tensor.handle.data, -1, -2), tensor.handle.dtype)
    return _typed(made, tensor.dtype, shape)


def _printed(*args: Any, **options: Any) -> None:
    builder().effect()
    print(*args, **options)


def replacements() -> Iterator[tuple[Any, str, Any]]:
    """What is replaced, after Triton has patched its language for interpreting: (owner, name, value)."""
    for owner in (tl, tl.core):
        yield owner, "reduce", _reduce
        yield owner, "associative_scan", _scan
        yield owner, "static_print", _printed
    yield tl.core.tensor, "__bool__", _bool
    semantic = tl.semantic.TritonSemantic
    yield semantic, "load", _building_loads(semantic.load)
    yield tl.core.tensor, "__index__", _index
    yield tl.core.tensor, "T", property(_transposed)


def memoised() -> Iterator[tuple[Any, str, Any]]:
    """Constructors that remember what depends on the shape only: (owner, name, value)."""
    constexpr, core = tl.core.constexpr, tl.core
    block_init, unwrap = core.block_type.__init__, core._unwrap_if_constexpr
    blocks: dict[tuple[str, tuple[Any, ...]], dict[str, Any]] = {}
    sizes: dict[int, tuple[Any, Any, Any]] = {}  # by identity of a shape, which is kept and so stays unique
    scalar = (constexpr(1), core.tuple([]))
    unwrapped = (list, tuple, core.tuple, constexpr)
    base_init = core.tensor.__mro__[1].__init__

    def tensor_init(self: Any, made: Any, type: Any) -> None:  # noqa: A002
        if base_init is not object.__init__:
            base_init(self)
        if type.is_block():
            shape = type.shape
            found = sizes.get(id(shape))
            if found is None:
                found = (shape, constexpr(math.prod(shape)), core.tuple([constexpr(size) for size in shape]))
                if id(shape) in known:
                    sizes[id(shape)] = found
            _, self.numel, self.shape = found
        else:
            self.numel, self.shape = scalar
        self.handle = made
        self.type = type
        self.dtype = type.scalar

    known: set[int] = set()

    def block_type_init(self: Any, element_ty: Any, shape: Any) -> None:
        try:
            key = (element_ty.name, tuple([s.value if s.__class__ is constexpr else s for s in shape]))
            found = blocks.get(key)
        except (AttributeError, TypeError):
            return block_init(self, element_ty, shape)  # type: ignore[no-any-return]
        if found is None:
            block_init(self, element_ty, shape)
            found = blocks[key] = {
                name: value for name, value in vars(self).items() if name not in ("element_ty", "token")
            }
            known.add(id(found["shape"]))
        self.__dict__.update(found)
        self.element_ty = element_ty
        return None

    def unwrap_if_constexpr(value: Any) -> Any:
        if value.__class__ is constexpr:
            return value.value
        return unwrap(value) if isinstance(value, unwrapped) else value

    yield core.tensor, "__init__", tensor_init
    yield core.block_type, "__init__", block_type_init
    yield core, "_unwrap_if_constexpr", unwrap_if_constexpr
