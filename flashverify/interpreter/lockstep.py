"""All programs of a launch at once: every array gets a leading axis over programs, of length 1 where all agree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.hooks import InterpreterBuilder, handle
from flashverify.interpreter.late import Outer, Spread, part_of, spread
from flashverify.interpreter.layer import Layer, Together, TooLarge, Unsupported
from flashverify.interpreter.numerics import as_array
from flashverify.interpreter.parting import Parting, bounds_of

__all__ = ["Lockstep"]

_ELEMENTWISE = """
create_add create_sub create_mul create_sdiv create_udiv create_idiv create_srem create_urem create_umulhi
create_fadd create_fsub create_fmul create_fdiv create_frem create_fneg create_fma create_precise_divf create_approx_divf
create_minsi create_minui create_minimumf create_minnumf create_maxsi create_maxui create_maximumf create_maxnumf create_clampf
create_icmpSLE create_icmpSLT create_icmpSGE create_icmpSGT create_icmpULE create_icmpULT create_icmpUGE create_icmpUGT
create_icmpEQ create_icmpNE create_fcmpOLT create_fcmpOGT create_fcmpOLE create_fcmpOGE create_fcmpOEQ create_fcmpONE
create_fcmpULT create_fcmpUGT create_fcmpULE create_fcmpUGE create_fcmpUEQ create_fcmpUNE
create_and create_or create_xor create_shl create_lshr create_ashr
create_fabs create_iabs create_exp create_exp2 create_log create_log2 create_sin create_cos create_erf create_floor create_ceil
create_sqrt create_precise_sqrt create_rsqrt
create_si_to_fp create_ui_to_fp create_fp_to_si create_fp_to_ui create_fp_ext create_fp_trunc create_fp_to_fp create_int_cast
create_addptr create_bitcast create_int_to_ptr create_ptr_to_int
""".split()  # noqa: SIM905
"""Work on any shape, given operands of one rank."""

_ANY_SHAPE = [
    "create_dot",
    "create_get_num_programs",
    "create_load",
    "create_store",
    "create_assert",
    "create_assume",
    "create_barrier",
]
"""The axes that they look at are the last ones, or none."""


def _aligned(*arrays: Any) -> list[Any]:
    """The arrays with one leading axis, contiguous."""
    count = max([x.shape[0] for x in arrays])
    return [np.ascontiguousarray(x if x.shape[0] == count else spread(x, (count, *x.shape[1:]))) for x in arrays]


def _fits(ptrs: Any, held: Any) -> bool:
    """Whether what a handle is a broadcast of can be broadcast to the pointers."""
    part, shape = part_of(held).shape, ptrs.shape
    if part == shape:
        return True
    if len(part) != len(shape):
        return False
    for n, m in zip(part, shape, strict=True):  # noqa: SIM110, a generator takes three times as long
        if n not in (1, m):
            return False
    return True


class Lockstep(Layer):
    """The axis of programs, hidden from Triton: its types keep the shape of one program's tile.

    Attributes:
        places: the program ids along each grid axis, `[programs]` int32.
        limit: elements that one array may have.
    """

    lockstep = True
    places: tuple[Any, Any, Any]
    limit: int

    def _full(self, data: Any, shape: Any) -> Any:
        """`data` as `[programs or 1, *shape]`."""
        self._check_room(shape)
        return spread(data, (data.shape[0], *shape))

    def _check_room(self, shape: Any) -> None:
        elements = math.prod(shape)
        count = len(self.programs)
        if count > 1 and count * elements > self.limit:
            raise TooLarge(elements)

    # --- where the axis begins --------------------------------------------------------------------------------------

    def create_get_program_id(self, axis: int) -> Any:
        """The ids of all programs; one value where the grid has no extent along `axis`."""
        ids = self.places[axis]
        return handle(ids[:1] if self.grid_dim[axis] == 1 else ids, self._int32)

    @property
    def _int32(self) -> Any:
        return self.get_int32_ty()

    def create_make_range(self, _ret_ty: Any, start: int, stop: int) -> Any:
        """start, ..., stop - 1, the same in every program."""
        return handle(np.arange(start, stop, dtype=np.int32)[None], self._int32)

    def loop(self, carried: Any, read: Any, callee: Any, *args: Any, **named: Any) -> Any:
        """Programs part where they walk a loop differently; inside a call that is recorded they diverge."""
        bounds = None if self.recordings else bounds_of(callee, args, named)
        if bounds is None:
            return super().loop(carried, read, callee, *args, **named)
        start, turns, step = bounds
        if not count_nonzero(turns != turns[0]) and not count_nonzero(start != start[0]):
            first = int(start[0])
            return Together(range(first, first + int(turns[0]) * step, step))
        return Parting(self, carried, read, start, turns, step)

    # --- shapes -----------------------------------------------------------------------------------------------------

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        """A scalar as a tile."""
        scalar = arg.data.reshape(arg.data.shape[0], *(1,) * len(ret_ty.shape))
        self._check_room(ret_ty.shape)
        return Spread(scalar, (scalar.shape[0], *ret_ty.shape), arg.dtype.scalar)

    def create_unsplat(self, arg: Any) -> Any:
        """The element of a tile of one."""
        return handle(arg.data.reshape(arg.data.shape[0]), arg.dtype.scalar)

    def create_broadcast(self, arg: Any, shape: Any) -> Any:
        """Repeat along axes of length 1."""
        return handle(self._full(arg.data, shape), arg.dtype.scalar)

    def create_expand_dims(self, arg: Any, axis: int) -> Any:
        """A new axis of length 1."""
        if axis < 0:
            return handle(np.expand_dims(arg.data, axis), arg.dtype.scalar)
        return handle(arg.data[(slice(None),) * (axis + 1) + (None,)], arg.dtype.scalar)

    def create_reshape(self, arg: Any, shape: Any, _allow_reorder: bool) -> Any:
        """The same elements in another shape."""
        return handle(arg.data.reshape(arg.data.shape[0], *shape), arg.dtype.scalar)

    def create_trans(self, arg: Any, perm: Any) -> Any:
        """Permute the axes."""
        return handle(np.transpose(arg.data, (0, *(p + 1 for p in perm))), arg.dtype.scalar)

    def create_cat(self, lhs: Any, rhs: Any) -> Any:
        """One after the other, along the first axis."""
        return handle(np.concatenate(_aligned(lhs.data, rhs.data), axis=1), lhs.dtype.scalar)

    def create_join(self, lhs: Any, rhs: Any) -> Any:
        """Side by side, along a new last axis."""
        return handle(np.stack(_aligned(lhs.data, rhs.data), axis=-1), lhs.dtype.scalar)

    def create_split(self, val: Any) -> Any:
        """The inverse of `create_join`."""
        return handle(val.data[..., 0], val.dtype.scalar), handle(val.data[..., 1], val.dtype.scalar)

    def create_gather(self, src: Any, indices: Any, axis: int) -> Any:
        """Take along an axis."""
        data, index = _aligned(src.data, indices.data)
        return handle(np.take_along_axis(data, index, axis=axis if axis < 0 else axis + 1), src.dtype.scalar)

    def create_select(self, cond: Any, lhs: Any, rhs: Any) -> Any:
        """Elementwise choice."""
        if not cond.data.ndim == lhs.data.ndim == rhs.data.ndim:
            raise Unsupported("a choice between operands of different rank")
        return handle(np.where(cond.data, lhs.data, rhs.data), rhs.dtype.scalar)

    # --- memory -----------------------------------------------------------------------------------------------------

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        """Load once where all programs load the same, else in every program."""
        if ptrs.__class__ is Outer and _fits(ptrs, mask) and (other is None or _fits(ptrs, other)):
            mask = Spread(part_of(mask), ptrs.shape, None)
            other = None if other is None else Spread(part_of(other), ptrs.shape, other.dtype)
            return super().create_masked_load(ptrs, mask, other, *rest, **options)
        keep = as_array(mask)
        if other is None:
            at, keep = _aligned(ptrs.data, keep)
        else:
            at, keep, fill = _aligned(ptrs.data, keep, other.data)
            other = handle(fill, other.dtype)
        return super().create_masked_load(handle(at, ptrs.dtype), handle(keep, None), other, *rest, **options)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        """Store in every program, in their order."""
        every = self.programs  # makes the leading axis that of all programs
        if ptrs.__class__ is Outer and ptrs.shape[0] == len(every) and _fits(ptrs, mask):
            data, _ = _aligned(value.data, every)
            keep = Spread(part_of(mask), ptrs.shape, None)
            return super().create_masked_store(ptrs, handle(data, value.dtype), keep, *rest, **options)
        at, data, keep, _ = _aligned(ptrs.data, value.data, as_array(mask), every)
        return super().create_masked_store(
            handle(at, ptrs.dtype), handle(data, value.dtype), handle(keep, None), *rest, **options
        )

    # --- reductions -------------------------------------------------------------------------------------------------

    def create_reduction(self, src: Any, kind: str, axis: int | None, keep_dims: bool) -> Any:
        """Reduce within each program."""
        if axis is not None:
            return super().create_reduction(src, kind, axis + 1, keep_dims)
        flat = handle(np.ascontiguousarray(src.data).reshape(src.data.shape[0], -1), src.dtype)
        total = super().create_reduction(flat, kind, 1, False)
        if keep_dims:
            total.data = total.data.reshape(total.data.shape[0], *(1,) * (src.data.ndim - 1))
        return total

    def create_arg_reduction(self, src: Any, kind: str, axis: int, keep_dims: bool) -> Any:
        """Find within each program."""
        return super().create_arg_reduction(src, kind, axis + 1, keep_dims)

    def create_prefix(self, src: Any, kind: str, axis: int, reverse: bool) -> Any:
        """Scan within each program."""
        return super().create_prefix(src, kind, axis + 1, reverse)


def _refuse(name: str) -> Any:
    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise Unsupported(name)

    return refused


for _name in dir(InterpreterBuilder):
    if _name.startswith("create_") and _name not in {*_ELEMENTWISE, *_ANY_SHAPE} and _name not in vars(Lockstep):
        setattr(Lockstep, _name, _refuse(_name))
