"""Memory that a subject allocates while its inputs span more than 2^31 elements."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from flashverify.case.memory.far.host import host_tensor
from flashverify.case.memory.far.strides import far_strides, span
from flashverify.case.memory.guard import Guard
from flashverify.case.memory.handed import copying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import torch

    from flashverify.case.memory.guard import Damage

__all__ = ["far_outputs"]

_LARGE = 1 << 26
"""Elements from which on nothing but the elements of a tensor is filled."""


class FarGuard(Guard):
    """Guards as `Guard` does, and does not touch what lies between the elements of large tensors.

    Args:
        pattern: see `Guard`.
        axis: the axis along which floating-point tensors that have it before their last one are stretched; None for none.
    """

    def __init__(self, pattern: int, axis: int | None) -> None:
        super().__init__(pattern)
        self._axis = axis

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
        if filled:
            made.copy_(tensor)
        return self.adopt(made, filled=filled)

    def damage(self) -> list[Damage]:
        """None: an access outside a tensor is the sanitizer's to see."""
        return []


def far_outputs(axis: int | None) -> Callable[..., AbstractContextManager[Guard]]:
    """What stands in for `guard_outputs` in a pass over a far problem.

    Args:
        axis: see `FarGuard`.
    """

    @contextmanager
    def guarding(*, pattern: int = 0) -> Iterator[Guard]:
        from flashverify.case.memory.guard_mode import GuardMode

        guard = FarGuard(pattern, axis)
        with GuardMode(guard):
            yield guard

    return guarding
