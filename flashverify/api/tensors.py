"""Tensors of any framework, and small lists of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["as_integers", "as_tensor", "as_trees", "expanded", "require_shape"]


def as_tensor(name: str, value: Any) -> torch.Tensor:
    """A detached torch tensor that shares the memory of `value` where possible.

    Args:
        name: of the argument, for messages.
        value: a tensor of torch, an array of numpy (with ml_dtypes), anything with DLPack (JAX, CuPy), or a list.

    Raises:
        UsageError: it is none of these.
    """
    import torch
    from torch.utils.dlpack import from_dlpack

    if isinstance(value, torch.Tensor):
        return value.detach()
    if hasattr(value, "__array_interface__"):
        if value.dtype.name == "bfloat16":  # ml_dtypes, which torch reads only by its bits
            return torch.from_numpy(value.view("uint16").copy()).view(torch.bfloat16)
        return torch.from_numpy(value.copy())
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value).detach()
    if isinstance(value, list | tuple):
        try:
            return torch.tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(f"{name}={value!r:.200} is not accepted: {error}") from error
    raise UsageError(f"{name}={type(value).__name__} is not accepted: a tensor of torch, numpy, or with DLPack")


def as_integers(name: str, value: Any) -> tuple[int, ...] | None:
    """The integers of a tensor with one axis, or None.

    Raises:
        UsageError: it holds something else.
    """
    if value is None:
        return None
    tensor = as_tensor(name, value)
    whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex or str(tensor.dtype) == "torch.bool")
    if tensor.dim() != 1 or not (whole or not tensor.numel()):
        raise UsageError(f"{name}={value!r:.200} is not accepted: integers along one axis")
    return tuple(int(x) for x in tensor.tolist())


def as_trees(name: str, value: Any) -> tuple[int, ...] | tuple[tuple[int, ...], ...] | None:
    """Parents of the nodes: integers along one axis, or `[B, Sq]` for a tree of each entry; None of None.

    Raises:
        UsageError: it holds something else.
    """
    if value is None or as_tensor(name, value).dim() != 2:
        return as_integers(name, value)
    trees = tuple(as_integers(name, entry) or () for entry in as_tensor(name, value))
    return trees if len(trees) != 1 else trees[0]


def expanded(name: str, value: Any, shape: tuple[int, ...], device: torch.device, meaning: str) -> torch.Tensor:
    """A bool tensor of that shape on that device.

    Raises:
        UsageError: it is not bool, or does not broadcast.
    """
    import torch

    found = as_tensor(name, value).to(device)
    if found.dtype != torch.bool:
        raise UsageError(f"{name} of dtype {found.dtype} is not accepted: bool, true where {meaning}")
    try:
        return found.expand(shape)
    except RuntimeError:
        raise UsageError(
            f"{name} of shape {list(found.shape)} is not accepted: it must broadcast to {list(shape)}"
        ) from None


def require_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...], hint: str = "") -> None:
    """Refuses another shape than `shape`.

    Raises:
        UsageError: the message names both, and the hint.
    """
    if tuple(tensor.shape) != shape:
        raise UsageError(f"{name} of shape {list(tensor.shape)} is not accepted: {list(shape)}{hint}")
