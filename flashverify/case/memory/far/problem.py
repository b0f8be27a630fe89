"""A problem with the values of another one, whose tensors span more than 2^31 elements."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.memory.far.strides import FAR_AXES, far_strides
from flashverify.case.tensors import TENSORS
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from flashverify.case.problem import Problem
    from flashverify.case.tensor_spec import TensorSpec

    Place = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]

__all__ = ["far_problem", "host_copy"]

_NAMES = {
    "batch": ("batch", "sequence"),
    "head": ("head_q", "head_kv"),
    "row": ("row", "key"),
}
_VIEWS = 1 << 15
"""Vectors along the last axis that a tensor may have: each touches a page of memory of its own."""


def far_problem(problem: Problem, axis: str, place: Place | None = None) -> Problem | None:
    """The problem in stretched tensors: those of the case's dtype and, where its storage is strided, those of fp32.

    Integers, patterns of bits and vectors stay, and so do fp32 tensors that subjects may take to be contiguous. Of a pool only the
    stride of its pages is stretched by itself: no page holds 2^31 elements.

    Args:
        problem: left as it is.
        axis: one of `FAR_AXES`.
        place: makes a tensor of given strides that holds what the given one holds; None takes the host's memory.

    Returns:
        None where no tensor has such an axis, or one has too many rows.

    Raises:
        UsageError: the axis is unknown.
        OSError: the memory cannot be had.
    """
    if axis not in FAR_AXES:
        raise UsageError(f"axis={axis!r} is not accepted: one of {FAR_AXES}")
    place = place or host_copy
    found: dict[str, Any] = {}
    for name, spec in TENSORS.items():
        tensor = getattr(problem, name)
        if tensor is None or not _stretched(spec, problem) or tensor.dim() < 2:
            continue
        number = None if axis == "all" else spec.axis(*_NAMES.get(axis, ()))
        if axis == "all" or number is not None:
            _add(found, name, tensor, number, place)
    if problem.pages is not None and axis in ("page", "all"):
        pools: dict[str, Any] = {}
        for name in ("k", "v"):
            _add(pools, name, getattr(problem.pages, name), 0 if axis == "page" else None, place)
        if pools:
            found["pages"] = dataclasses.replace(problem.pages, **pools)
    return dataclasses.replace(problem, **found) if found else None


def host_copy(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor of these strides in the host's memory, of which only the pages of its elements are touched.

    Raises:
        OSError: the memory cannot be had.
    """
    import torch

    from flashverify.case.memory.far.host import host_tensor

    made = host_tensor(tuple(tensor.shape), strides, tensor.dtype)
    target, values = made, tensor.detach()
    for number, stride in enumerate(strides):
        if stride == 0 and tensor.shape[number] > 1:
            target, values = target.narrow(number, 0, 1), values.narrow(number, 0, 1)
    with torch.no_grad():
        target.copy_(values)
    return made


def _stretched(spec: TensorSpec, problem: Problem) -> bool:
    return spec.dtype == "case" or (spec.dtype == "fp32" and problem.case.storage.strided)


def _add(found: dict[str, Any], name: str, tensor: torch.Tensor, number: int | None, place: Place) -> None:
    strides = far_strides(tuple(tensor.shape), tensor.stride(), number)
    if strides is not None and tensor.numel() // max(tensor.shape[-1], 1) <= _VIEWS:
        found[name] = place(tensor, strides)
