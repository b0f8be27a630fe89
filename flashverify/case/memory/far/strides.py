"""Strides by which a small tensor spans more than 2^31 elements."""

from __future__ import annotations

import math

__all__ = ["FAR_AXES", "REACH", "far_strides", "span"]

FAR_AXES = ("batch", "head", "row", "page", "all")
"""What is stretched: one axis, or every stride by one factor."""

REACH = 19 * 2**31 // 10 // 64 * 64
"""Elements that a stretched tensor spans at most. An offset from 2^31 on, wrapped to 32 bits, lies 2^29 elements or more before
the first element: it is never another element of the tensor, nor an access just outside it."""
_STEP = 64
"""A stretched stride keeps its remainder by this many elements, and so the alignment that compiled code may assume."""


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first one to one past the last; 0 of an empty tensor."""
    if not math.prod(shape):
        return 0
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def far_strides(shape: tuple[int, ...], strides: tuple[int, ...], axis: int | None) -> tuple[int, ...] | None:
    """The strides of the same tensor stretched; None where it cannot be.

    Axes of stride 1, along which kernels need neighbours, and of stride 0 stay as they are. An axis of three entries or more gets
    a stride below 2^31, a 32-bit argument of a kernel, whose product with the last index is above. The stride of an axis with two
    entries is just below 2^31, and every sum of it with some other offset is above.

    Args:
        shape: of the tensor.
        strides: in elements; no two elements share a place but along axes of stride 0.
        axis: the axis that is stretched; None multiplies every stride but 0 and 1 by one factor.
    """
    extent = span(shape, strides)
    if axis is None:
        factor = REACH // max(extent, 1) // _STEP * _STEP + 1  # 1 more than a multiple: a remainder by `_STEP` stays
        steps = (n > 1 and stride > 1 for n, stride in zip(shape, strides, strict=True))
        if not extent or factor == 1 or not any(steps):
            return None
        return tuple(stride * factor if stride > 1 else stride for stride in strides)
    n, stride = shape[axis], strides[axis]
    if not extent or n < 2 or stride < 2:
        return None
    inner = extent - (n - 1) * stride
    far = min((REACH - inner) // (n - 1), 2**31 - 1)
    far = (far - stride) // _STEP * _STEP + stride
    return (*strides[:axis], far, *strides[axis + 1 :]) if far > inner else None
