"""Functions of torch's own compiler that answer and allocate sooner than the public ones; where torch has none, the public ones."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)


def likeness(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """A function that says of as many arguments whether they are tensors of equal class, shape, strides, dtype and device.

    It may take like ones for others: it also compares what dispatch reads of a tensor and of the thread. It keeps no tensor.

    Returns:
        None where torch offers none.
    """
    try:
        found: Callable[..., bool] = _guards.TensorGuards(
            *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
        ).check
    except Exception:  # whatever another torch makes of these arguments
        return None
    return found


def maker(like: torch.Tensor) -> Callable[[], torch.Tensor]:
    """What allocates tensors of the shape, strides, dtype and device of `like`, which is to lie on the current device."""
    direct = getattr(_guards, f"_empty_strided_{like.device.type}", None)
    if direct is None:
        return functools.partial(torch.empty_strided, like.shape, like.stride(), dtype=like.dtype, device=like.device)
    return functools.partial(direct, tuple(like.shape), like.stride(), like.dtype)
