"""The dispatch mode behind `guard_outputs`; apart from it because torch must be imported to define one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.memory.guard import Guard

__all__ = ["guard_mode"]

_ATEN = torch.ops.aten
_CLONE = _ATEN.clone.default
_EMPTY = {
    _ATEN.empty.memory_format,
    _ATEN.empty_like.default,
    _ATEN.empty_strided.default,
    _ATEN.new_empty.default,
    _ATEN.new_empty_strided.default,
}
_FILLED = {
    _ATEN.zeros.default,
    _ATEN.zeros_like.default,
    _ATEN.new_zeros.default,
    _ATEN.ones.default,
    _ATEN.ones_like.default,
    _ATEN.new_ones.default,
    _ATEN.full.default,
    _ATEN.full_like.default,
    _ATEN.new_full.default,
}
_FACTORIES = dict.fromkeys(_EMPTY, False) | dict.fromkeys(_FILLED, True)
"""Whether the caller asks for a content."""

_ABSOLUTE = ("torch::autograd::CopySlices", "AsStridedBackward0")
"""Steps of autograd that reach into a fresh allocation by offsets from the start of its storage, where the guard band lies."""


def guard_mode(guard: Guard) -> TorchDispatchMode:
    """Replaces the result of every factory function by a guarded tensor of the same shape and strides.

    torch has its compiler leave a mode alone, for which it imports the compiler when the mode is first met: more than a second of
    every process that judges a case. A process that has not imported the compiler compiles nothing.
    """
    return (_Guarding if "torch._dynamo" in sys.modules else _GuardingUncompiled)(guard)


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A higher-order operator runs without the mode, and so does what torch compiled: their own allocations are not guarded.

    With the mode on its stack torch would run a compiled function uncompiled.
    """

    supports_higher_order_operators = True

    def __init__(self, guard: Guard) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._guard = guard

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled functions stay compiled inside the mode."""
        return True

    def guarded(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the operator, surrounded where it is a fresh allocation."""
        result = func(*args, **kwargs)
        if func is _CLONE and kwargs.get("memory_format") is torch.contiguous_format:
            self._guard.made_contiguous(args[0])
        filled = _FACTORIES.get(func)
        if filled is not None and type(result) is torch.Tensor and not _of_absolute_offsets():
            return self._guard.surround(result, filled=filled)
        return result


class _Guarding(_Mode):  # type: ignore[no-untyped-call]
    """The mode where functions may be compiled."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.guarded(func, args, kwargs or {})


class _GuardingUncompiled(_Mode):  # type: ignore[no-untyped-call]
    """The mode where nothing is compiled yet; a subject that begins to meanwhile has `_Guarding` from its next call on."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.guarded(func, args, kwargs or {})


def _of_absolute_offsets() -> bool:
    """Whether a step of `_ABSOLUTE` allocates: its memory is autograd's own."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name() in _ABSOLUTE
