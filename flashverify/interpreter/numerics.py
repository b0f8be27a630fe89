"""Right arithmetic: a mixin that computes what compiled kernels compute, in every format and for NaN."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from flashverify.interpreter import formats, gather
from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.formats import BF16, is_float, numpy_dtype
from flashverify.interpreter.hooks import handle, native, stock, tl
from flashverify.interpreter.late import part_of, spread
from flashverify.interpreter.layer import Layer, Unsupported

__all__ = ["Numerics", "as_array"]

_UINT = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}


def as_array(mask: Any) -> Any:
    """The array of a mask; descriptors of some versions pass it without a handle."""
    return mask if isinstance(mask, np.ndarray) else mask.data


def _owned(x: Any) -> Any:
    """A contiguous array that may be written to: the compiled store asks for one, though it only reads."""
    return x if x.flags.carray else np.array(x, order="C")


@functools.cache
def _opaque(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which memory is accessed: the compiled loads know none of ml_dtypes."""
    return _UINT[dtype.itemsize] if dtype.kind == "V" or dtype.name.startswith("float8") else dtype


def _same_rank(self: Layer, *operands: Any) -> None:
    if self.lockstep and len({x.data.ndim for x in operands}) > 1:
        raise Unsupported("operands of different rank")


class Numerics(Layer):
    """Casts, comparisons, minima and maxima, shifts, loads and stores; `Products` has products of tiles and reductions."""

    # --- constants and casts ----------------------------------------------------------------------------------------

    def get_bf16(self, value: float) -> Any:
        """A scalar, rounded once."""
        return handle(formats.convert(np.array([value], np.float64), BF16), tl.bfloat16)

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        """Numeric conversion, to nearest even; toward zero and saturating where floats become integers."""
        data, dtype = src.data, numpy_dtype(dst_type)
        if is_float(dtype):
            data = formats.convert(data, dtype)
        elif is_float(data.dtype) and dtype.kind in "iu":
            data = formats.float_to_int(data, dtype)
        else:
            data = data.astype(dtype)
        return handle(data, dst_type.scalar)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        """Conversion between floats with a declared rounding."""
        convert = formats.toward_zero if rounding_mode == stock._ir.ROUNDING_MODE.RTZ else formats.convert
        return handle(convert(src.data, numpy_dtype(dst_type)), dst_type.scalar)

    # --- elementwise ------------------------------------------------------------------------------------------------

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        """Apply a ufunc; the result is cast back where NumPy widened it."""
        x, y = lhs.data, rhs.data
        if x.ndim != y.ndim:
            _same_rank(self, lhs, rhs)
        output = op(x, y)
        if output.dtype is not x.dtype and output.dtype != x.dtype and output.dtype != bool:
            output = output.astype(numpy_dtype(lhs.dtype))
        return handle(output, lhs.dtype.scalar)

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        """Apply a function of three arrays."""
        _same_rank(self, lhs, rhs, other)
        return super().ternary_op(lhs, rhs, other, op)

    def unary_op(self, arg: Any, op: Any) -> Any:
        """Apply a ufunc."""
        return handle(op(arg.data), arg.dtype.scalar)

    def create_addptr(self, ptr: Any, offset: Any) -> Any:
        """Move pointers by elements; the type object of the pointers is carried along."""
        _same_rank(self, ptr, offset)
        size = max(1, ptr.get_element_ty().primitive_bitwidth // 8)
        return handle(ptr.data + offset.data.astype(np.uint64) * np.uint64(size), ptr.dtype)

    def create_idiv(self, lhs: Any, rhs: Any) -> Any:
        """The quotient, toward zero."""
        x, y = lhs.data, rhs.data
        return handle((x - np.fmod(x, y)) // y, lhs.dtype.scalar)

    def create_umulhi(self, lhs: Any, rhs: Any) -> Any:
        """The upper half of a product."""
        x, y = lhs.data, rhs.data
        if x.dtype != np.uint32 or y.dtype != np.uint32:
            return super().create_umulhi(lhs, rhs)
        return handle((np.multiply(x, y, dtype=np.uint64) >> np.uint64(32)).astype(np.uint32), lhs.dtype.scalar)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        """The larger one; the number where the other is NaN."""
        return self.binary_op(lhs, rhs, np.fmax)

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        """The smaller one; the number where the other is NaN."""
        return self.binary_op(lhs, rhs, np.fmin)

    def create_clampf(self, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> Any:
        """min(max(arg, lo), hi): NaN becomes `lo`, or stays where it propagates."""
        strict = propagate_nans == stock._ir.PROPAGATE_NAN.ALL
        low, high = (np.maximum, np.minimum) if strict else (np.fmax, np.fmin)
        return self.binary_op(self.binary_op(arg, lo, low), hi, high)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """The value of x * y + z, rounded once."""
        _same_rank(self, x, y, z)
        return handle(formats.fma(x.data, y.data, z.data), z.dtype.scalar)

    def create_fcmpONE(self, lhs: Any, rhs: Any) -> Any:  # noqa: N802
        """Ordered and different."""
        return self.binary_op(lhs, rhs, lambda x, y: (x < y) | (x > y))

    def create_fcmpUEQ(self, lhs: Any, rhs: Any) -> Any:  # noqa: N802
        """Equal or unordered."""
        return self.binary_op(lhs, rhs, lambda x, y: ~((x < y) | (x > y)))

    def create_fcmpULT(self, lhs: Any, rhs: Any) -> Any:  # noqa: N802
        """Less or unordered."""
        return self.binary_op(lhs, rhs, lambda x, y: ~(x >= y))

    def create_fcmpULE(self, lhs: Any, rhs: Any) -> Any:  # noqa: N802
        """Less, equal or unordered."""
        return self.binary_op(lhs, rhs, lambda x, y: ~(x > y))

    def create_fcmpUGT(self, lhs: Any, rhs: Any) -> Any:  # noqa: N802
        """Greater or unordered."""
        return self.binary_op(lhs, rhs, lambda x, y: ~(x <= y))

    def create_fcmpUGE(self, lhs: Any, rhs: Any) -> Any:  # noqa: N802
        """Greater, equal or unordered."""
        return self.binary_op(lhs, rhs, lambda x, y: ~(x < y))

    def create_ashr(self, lhs: Any, rhs: Any) -> Any:
        """Shift with the sign; the operands stay as they are."""
        return self._shift(lhs, rhs, "i")

    def create_lshr(self, lhs: Any, rhs: Any) -> Any:
        """Shift without the sign."""
        return self._shift(lhs, rhs, "u")

    def _shift(self, lhs: Any, rhs: Any, kind: str) -> Any:
        dtype = lhs.data.dtype
        x, y = (side.data.view(f"{kind}{side.data.itemsize}") for side in (lhs, rhs))
        shifted = self.binary_op(handle(x, lhs.dtype), handle(y, rhs.dtype), np.right_shift)
        return handle(shifted.data.view(dtype), lhs.dtype.scalar)

    # --- memory -----------------------------------------------------------------------------------------------------

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *_rest: Any, **_options: Any) -> Any:
        """Load; lanes that are masked off are `other`, or 0."""
        element = ptrs.get_element_ty()
        dtype = numpy_dtype(element)
        raw = _opaque(dtype)
        loaded = self._loaded(ptrs, mask, None if other is None else part_of(other).view(raw), raw)
        return handle(loaded if raw is dtype else loaded.view(dtype), element)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *_rest: Any, **_options: Any) -> Any:
        """Store; while there is a journal, what was there before is kept in it."""
        data = value.data
        words = None if self.within is None else self.within.argument.words(_opaque(data.dtype))
        if words is not None:
            places, keep = self.within.places.view(np.int64), part_of(mask)
            if self.within.width:
                words, keep = self.within.rows(words), keep[..., 0]
            if count_nonzero(keep) != keep.size:
                keep = spread(keep, places.shape)
                places, data = places[keep], data[keep]
            if self.journal is not None:
                self.journal.append(functools.partial(words.__setitem__, places, words[places]))
            words[places] = data.view(words.dtype)
            return
        at, data, keep = _owned(ptrs.data), _owned(data), _owned(as_array(mask))
        if self.journal is not None:
            before = gather.load(at, keep, None, _UINT[data.itemsize])
            self.journal.append(functools.partial(native.store, at, before, keep))
        gather.store(at, data.view(_opaque(data.dtype)), keep)

    def _loaded(self, ptrs: Any, mask: Any, fill: Any, dtype: Any) -> Any:
        """The elements at addresses; `fill`, or 0, where they are masked off."""
        words = None if self.within is None else self.within.argument.words(dtype)
        if words is None:
            at = ptrs.data
            return gather.load(at, as_array(mask), fill if fill is None else spread(fill, at.shape), dtype)
        found = self.within.taken(words)
        if self.within.whole:
            return found
        keep = part_of(mask)
        if count_nonzero(keep) == keep.size:
            return found
        if keep.shape[-1] == 1 and (fill is None or fill.size == 1):
            found[~spread(keep[..., 0], found.shape[:-1])] = 0 if fill is None else fill.reshape(())
            return found
        return np.where(keep, found, dtype.type(0) if fill is None else fill)

    def undo(self) -> None:
        """Take back the stores of the journal."""
        while self.journal:
            self.journal.pop()()

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        """An atomic operation; on bf16, which Triton's compiled code lacks, only the addition.

        A sum in fp16 that overflows is infinite, as on a GPU; Triton's compiled code raises there.

        Raises:
            NotImplementedError: another operation on bf16.
        """
        dtype, addition = val.data.dtype, rmwOp == stock._ir.ATOMIC_OP.FADD
        if dtype != BF16 and not (dtype == np.float16 and addition):
            return super().create_atomic_rmw(rmwOp, ptr, val, mask, *rest)
        if not addition:
            raise NotImplementedError(f"atomic {rmwOp} on bf16 is not supported by flashverify.interpreter")
        found = np.zeros(val.data.shape, np.uint16)
        address, addend, keep = (np.broadcast_to(x.data, found.shape) for x in (ptr, val, mask))
        for lane in zip(*np.nonzero(keep), strict=True):
            at = np.ascontiguousarray(address[lane]).reshape(1)
            before = native.load(at, np.ones(1, bool), np.zeros(1, np.uint16), _UINT[2])
            with np.errstate(over="ignore", invalid="ignore"):
                after = before.view(dtype) + addend[lane]
            native.store(at, after.view(np.uint16), np.ones(1, bool))
            found[lane] = before[0]
        return handle(found.view(dtype), val.dtype.scalar)
