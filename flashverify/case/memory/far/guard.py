"""Memory that a subject allocates while its inputs span more than 2^31 elements."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from flashverify.case.memory.far.host import host_tensor
from flashverify.case.memory.far.strides import far_strides, span
from flashverify.case.memory.guard import Guard
from flashverify.case.memory.handed import copying

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.memory.guard import Damage

__all__ = ["FarOutputs"]

_LARGE = 1 << 26
"""Elements from which on nothing but the elements of a tensor is filled."""


class FarGuard(Guard):
    """Guards as `Guard` does, and does not touch what lies between the elements of large tensors.

    Args:
        pattern: see `Guard`.
        axis: the axis along which floating-point tensors that have it before their last one are stretched; None for none.

    Attributes:
        copied: whether the subject took a contiguous copy of a stretched tensor. In memory of its usual strides there is no copy, so
            what a kernel stores in this one is lost through the stretching alone.
    """

    def __init__(self, pattern: int, axis: int | None) -> None:
        super().__init__(pattern)
        self._axis = axis
        self._stretched: set[int] = set()
        self.copied = False

    def surround(self, tensor: torch.Tensor, *, filled: bool) -> torch.Tensor:
        """As `Guard.surround`; of a stretched tensor the strides are larger. Copies that helpers promise to be contiguous are not stretched."""
        shape, strides = tuple(tensor.shape), tensor.stride()
        floats = tensor.is_floating_point() and tensor.device.type == "cpu" and not copying()
        has = floats and self._axis is not None and self._axis < tensor.dim() - 1
        far = far_strides(shape, strides, self._axis) if has else None
        if far is None and (tensor.device.type != "cpu" or span(shape, strides) < _LARGE):
            return super().surround(tensor, filled=filled)
        if self._word(tensor) is None:
            return tensor
        made = host_tensor(shape, far or strides, tensor.dtype)
        if far is not None:
            self._stretched.add(made.untyped_storage().data_ptr())
        if filled:
            made.copy_(tensor)
        return self.adopt(made, filled=filled)

    def made_contiguous(self, tensor: torch.Tensor) -> None:
        """Remembers whether it is a stretched one."""
        self.copied = self.copied or tensor.untyped_storage().data_ptr() in self._stretched

    def damage(self) -> list[Damage]:
        """None: an access outside a tensor is the sanitizer's to see."""
        return []


class FarOutputs:
    """What stands in for `guard_outputs` in a pass over a far problem.

    Args:
        axis: see `FarGuard`.
    """

    def __init__(self, axis: int | None) -> None:
        self._axis = axis
        self._guards: list[FarGuard] = []

    @contextmanager
    def __call__(self, *, pattern: int = 0) -> Iterator[FarGuard]:
        """Guards what is allocated inside the block."""
        from flashverify.case.memory.guard_mode import guard_mode

        guard = FarGuard(pattern, self._axis)
        self._guards.append(guard)
        with guard_mode(guard):
            yield guard

    @property
    def copied(self) -> bool:
        """Whether the subject took a contiguous copy of memory that was stretched."""
        return any(guard.copied for guard in self._guards)
