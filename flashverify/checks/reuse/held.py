"""The memory of one problem in the hands of another one: the same addresses, tensor objects and version counters, other contents."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.case.shared_kv import shares
from flashverify.case.tensors import TENSORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from flashverify.case.problem import Problem

__all__ = ["held", "moved"]


@contextlib.contextmanager
def held(problem: Problem, other: Problem) -> Iterator[Problem]:
    """The memory of `problem` holds `other` until the end of the block.

    No version counter moves, as where a kernel writes or where memory is freed and handed out again. A cache that goes by shape,
    address, object, version or any of these together so takes the other problem for the first one.

    Args:
        problem: its bits are put back at the end.
        other: each of its tensors that does not fit in the memory of its namesake stays where it lies.

    Yields:
        `other` in that memory: the tensor objects of `problem` where shape, strides and dtype are equal, new ones where not.
    """
    before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def take(target: torch.Tensor | None, value: torch.Tensor | None) -> torch.Tensor | None:
        if target is None or value is None or target is value:
            return value
        view = _view(target, value)
        if view is None:
            return value
        words = _bytes(target)
        before.append((words, words.clone()))
        _write(view, value)
        return target if _alike(target, value) else view

    try:
        yield _mapped(problem, other, take)
    finally:
        for words, kept in reversed(before):
            words.copy_(kept)


@contextlib.contextmanager
def moved(problem: Problem, other: Problem) -> Iterator[Problem]:
    """The tensor objects of `problem` in the memory of `other`, a problem of equal shapes, until the end of the block."""
    before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def take(target: torch.Tensor | None, value: torch.Tensor | None) -> torch.Tensor | None:
        if target is None or value is None or not _alike(target, value):
            return value
        before.append((target, target.data))
        target.data = value
        return target

    try:
        yield _mapped(problem, other, take)
    finally:
        for target, data in before:
            target.data = data


def _mapped(
    problem: Problem, other: Problem, take: Callable[[torch.Tensor | None, torch.Tensor | None], torch.Tensor | None]
) -> Problem:
    shared = shares(problem.case)  # the memory of V is that of K
    names = [name for name in TENSORS if name != "v" or not shared]
    found: dict[str, Any] = {name: take(getattr(problem, name), getattr(other, name)) for name in names}
    if problem.pages is not None and other.pages is not None:
        pages: dict[str, Any] = {
            name: take(getattr(problem.pages, name), getattr(other.pages, name))
            for name in (*problem.pages.pools(), "table")
            if name != "v" or not shared
        }
        found["pages"] = dataclasses.replace(other.pages, **pages)
    return dataclasses.replace(other, **found)


def _alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    return (one.shape, one.stride(), one.dtype) == (two.shape, two.stride(), two.dtype)


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last one."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of the tensor from its first element to its last, `[bytes]` uint8, with a version counter of its own."""
    import torch

    words = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    start = tensor.storage_offset() * tensor.element_size()
    return words.set_(tensor.untyped_storage(), start, (_span(tensor),), (1,))


def _view(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
    """Memory for `value` from the first element of `target` on; None where it does not fit or cannot begin there."""
    import torch

    start = target.storage_offset() * target.element_size()
    if not 0 < _span(value) <= _span(target) or start % value.element_size():
        return None
    made = torch.empty(0, dtype=value.dtype, device=target.device)
    return made.set_(target.untyped_storage(), start // value.element_size(), value.shape, value.stride())


def _write(view: torch.Tensor, value: torch.Tensor) -> None:
    """Copies; along an axis of stride 0 the first entry counts."""
    for axis, (size, stride) in enumerate(zip(view.shape, view.stride(), strict=True)):
        if stride == 0 and size > 1:
            view, value = view.narrow(axis, 0, 1), value.narrow(axis, 0, 1)
    view.copy_(value)
