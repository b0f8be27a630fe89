"""Tensors of the CPU that say they lie on a GPU, and functions of torch that are told to allocate on one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEVICE", "CudaTensors"]

DEVICE = torch.device("cuda", 0)
_HOST = torch.device("cpu")

_Tensor: Any = torch.Tensor
_ANSWERS = {
    _Tensor.is_cuda.__get__: True,
    _Tensor.is_cpu.__get__: False,
    _Tensor.device.__get__: DEVICE,
    _Tensor.get_device: 0,
}
"""What tensors of the CPU answer."""
_STAYS = (_Tensor.pin_memory, _Tensor.cuda)


class CudaTensors(TorchFunctionMode):
    """Every function of torch gets the CPU where it was given the GPU."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function, or what a tensor of the CPU answers in its place."""
        kwargs = kwargs or {}
        if func in _ANSWERS:
            return _ANSWERS[func] if args[0].device.type == "cpu" else func(*args, **kwargs)
        if func in _STAYS:
            _on_host(next(iter(args[1:]), kwargs.get("device")), numbers=True)
            return args[0]
        if func is _Tensor.record_stream:
            return None
        moved = func is _Tensor.to
        if moved and _names_host(args, kwargs):
            kwargs = {**kwargs, "copy": True}
        elif func is _Tensor.cpu:
            return args[0].clone()
        args = tuple(_on_host(x, texts=moved, numbers=moved and n == 1) for n, x in enumerate(args))
        if "device" in kwargs:
            kwargs["device"] = _on_host(kwargs["device"], texts=True, numbers=True)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*args, **kwargs)


def _names_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a conversion leaves the GPU, which makes a copy."""
    device = kwargs.get("device", args[1] if len(args) > 1 else None)
    return isinstance(device, str | torch.device) and torch.device(device).type == "cpu"


def _on_host(value: Any, *, texts: bool = True, numbers: bool = False) -> Any:
    """The CPU where a value names the GPU, and the value itself otherwise.

    Args:
        value: an argument.
        texts: whether a text may name a device.
        numbers: whether an integer names one.

    Raises:
        UsageError: it names a second GPU.
    """
    named = isinstance(value, torch.device) and value.type == "cuda"
    if texts and isinstance(value, str) and value.split(":")[0] == "cuda":
        named, value = True, torch.device(value)
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        named, value = True, torch.device("cuda", value)
    if not named:
        return value
    if value.index not in (None, 0):
        raise UsageError(f"device={str(value)!r} is not accepted inside pretend_cuda: there is one GPU, 'cuda:0'")
    return _HOST
