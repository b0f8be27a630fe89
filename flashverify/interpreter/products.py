"""Products and reductions of tiles."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from flashverify.interpreter.formats import is_float, tf32_nearest, tf32_truncate
from flashverify.interpreter.hooks import handle, stock, tl
from flashverify.interpreter.layer import Layer

__all__ = ["Products"]

_REDUCTIONS: dict[str, Any] = {
    "sum": np.add.reduce,
    "max": np.fmax.reduce,
    "min": np.fmin.reduce,
    "xor": np.bitwise_xor.reduce,
    "or": np.bitwise_or.reduce,
}
_ARGUMENTS: dict[str, tuple[Any, Any]] = {"argmax": (np.max, np.argmax), "argmin": (np.min, np.argmin)}
_OPERAND = "flashverify.operand"
_PREFIXES: dict[str, Any] = {"sum": np.cumsum, "prod": np.cumprod}


@functools.cache
def _name(dtype: np.dtype[Any]) -> str:
    """Remembered: NumPy works it out anew at every use."""
    return dtype.name


def _rows_in_order(x: Any, dtype: Any = None) -> Any:
    """`x` with each tile's rows one after the other in memory, as `dtype`: the layout in which every product and sum is taken.

    A BLAS may add in another order for a transposed tile, and NumPy does for a sum along one, so the layout in which an
    operation happens to leave its result must decide nothing. An axis of programs that all share one tile keeps its stride 0.

    Args:
        x: `[..., M, N]` or `[N]`.
        dtype: of the result; that of `x` where None.
    """
    if x.ndim > 2 and x.shape[0] > 1 and x.strides[0] == 0:
        return np.broadcast_to(_rows_in_order(x[:1], dtype), x.shape)
    return np.ascontiguousarray(x, dtype)


def _operand(of: Any, dtype: Any) -> Any:
    """The array of a handle as a product takes it, made once: a tile stays for all turns of a loop, unless another is put in its place."""
    data, found = of.data, of.attr.get(_OPERAND)
    if found is None or found[0] is not data:
        made = _rows_in_order(data, dtype).view()
        made.flags.writeable = False  # the next product takes it as it is
        found = of.attr[_OPERAND] = data, made
    return found[1]


def _tree_sum(x: Any, axis: int | None, keepdims: bool) -> Any:
    """Sum by halves, every partial sum rounded to the type of `x`: close to the order of a warp, whatever it is."""
    rank = x.ndim
    if axis is None:
        x, axis = x.reshape(-1), 0
    x = np.moveaxis(x, axis, 0)
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        x = np.concatenate([x[:half] + x[half : 2 * half], x[2 * half :]])
    total = x[0]
    if not keepdims:
        return total
    return total.reshape((1,) * rank) if total.ndim == 0 else np.expand_dims(total, axis)


class Products(Layer):
    """`create_dot`, and the reductions and scans that Triton does not pass through its builder."""

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, *_rest: Any, **_options: Any) -> Any:
        """The product a @ b + d, accumulated in fp32 (fp64 and integers in their own type), operands as `input_precision` says."""
        acc = d.data
        if not is_float(a.data.dtype):
            return handle(np.matmul(a.data, b.data, dtype=acc.dtype) + acc, d.dtype.scalar)
        kind = _name(a.data.dtype)
        held = np.float32 if a.data.dtype.itemsize < 4 else None
        x, y = _operand(a, held), _operand(b, held)
        precision = stock._ir.INPUT_PRECISION
        if kind != "float32" or input_precision not in (precision.TF32, precision.TF32x3):
            total = self.accumulate(x, y, acc.astype(x.dtype, copy=False), kind)
        elif input_precision == precision.TF32:
            total = self.accumulate(tf32_truncate(x), tf32_truncate(y), acc, "tf32")
        else:
            total = self._tf32x3(x, y) + acc
        return handle(total.astype(acc.dtype, copy=False), d.dtype.scalar)

    def _tf32x3(self, x: Any, y: Any) -> Any:
        """As Triton lowers it: the small parts first, their sum dropped where it is NaN, the accumulator last."""
        zero = np.float32(0)
        high_x, high_y = tf32_nearest(x), tf32_nearest(y)
        low_x, low_y = tf32_truncate(x - high_x), tf32_truncate(y - high_y)
        small = self.accumulate(low_x, high_y, zero, "tf32")
        small = self.accumulate(high_x, low_y, small, "tf32")
        return self.accumulate(high_x, high_y, np.where(np.isnan(small), zero, small), "tf32")

    def accumulate(self, x: Any, y: Any, acc: Any, kind: str) -> Any:
        """One product of tiles: the place to model a tensor core.

        Args:
            x: left operands, already in the type of the accumulation, read-only; their values fit the format `kind`.
            y: right operands, likewise.
            acc: added last.
            kind: "float16", "bfloat16", an fp8 name, "tf32", "float32" or "float64".
        """
        del kind
        product = np.matmul(x, y)
        if product.shape == acc.shape and product.dtype == acc.dtype:
            product += acc
            return product
        return product + acc

    def create_reduction(self, src: Any, kind: str, axis: int | None, keep_dims: bool) -> Any:
        """Reduce one axis, or all of them: "sum", "max", "min" (NaN only where all are), "xor" or "or"."""
        data = _rows_in_order(src.data) if kind == "sum" and is_float(src.data.dtype) else src.data
        if kind == "sum" and is_float(data.dtype) and data.dtype.itemsize < 4:
            out = _tree_sum(data, axis, keep_dims)
        else:
            out = _REDUCTIONS[kind](data, axis=axis, keepdims=keep_dims)
        return self._reduced(out, data.dtype, src)

    def create_arg_reduction(self, src: Any, kind: str, axis: int, keep_dims: bool) -> tuple[Any, Any]:
        """Extremum along an axis and the first place where it is: "argmax" or "argmin"."""
        extremum, place = _ARGUMENTS[kind]
        value = self._reduced(extremum(src.data, axis=axis, keepdims=keep_dims), src.data.dtype, src)
        index = self._reduced(place(src.data, axis=axis, keepdims=keep_dims), np.dtype(np.int32), src)
        return value, handle(index.data, tl.int32)

    def create_prefix(self, src: Any, kind: str, axis: int, reverse: bool) -> Any:
        """Inclusive prefix "sum" or "prod" along an axis, in ascending order, or from its end."""
        data = np.flip(src.data, axis) if reverse else src.data
        data = _PREFIXES[kind](data, axis=axis).astype(src.data.dtype, copy=False)
        return handle(np.flip(data, axis) if reverse else data, src.dtype.scalar)

    @staticmethod
    def _reduced(out: Any, dtype: Any, src: Any) -> Any:
        return handle(np.asarray(out, dtype).reshape(np.shape(out) or (1,)), src.dtype.scalar)
