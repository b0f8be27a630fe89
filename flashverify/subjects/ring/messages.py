"""What a worker and its ranks tell each other, and tensors as bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Failed", "Packed", "Task", "packed", "stack_file", "unpacked"]


@dataclass(frozen=True, slots=True)
class Packed:
    """A tensor in host memory.

    Attributes:
        dtype: its name in torch.
        shape: of the tensor.
        data: its elements in order.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One pass of one rank.

    Attributes:
        function: of `flashverify.subjects.ring.rank`.
        package: the kernel package.
        path: where it is searched for.
        ring: arguments of its `Ring`.
        options: arguments of its `Options`.
        tensors: shards of this rank, and what all ranks have, by name.
    """

    function: str
    package: str
    path: tuple[str, ...]
    ring: dict[str, Any]
    options: dict[str, Any]
    tensors: dict[str, Packed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """A rank raised an exception.

    Attributes:
        kind: name of its class.
        message: its text.
        traceback: the end of its traceback.
    """

    kind: str
    message: str
    traceback: str


def stack_file(store: str, rank: int) -> str:
    """Where a rank writes its stack when it gets `SIGUSR1`.

    Args:
        store: path of the file where the ranks meet.
        rank: its number.
    """
    return f"{store}.{rank}.stack"


def packed(x: torch.Tensor) -> Packed:
    """The tensor as bytes."""
    import torch

    data = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""
    return Packed(str(x.dtype).removeprefix("torch."), tuple(x.shape), data)


def unpacked(x: Packed) -> torch.Tensor:
    """The tensor of the bytes, on the CPU."""
    import torch

    dtype = getattr(torch, x.dtype)
    if not x.data:
        return torch.empty(x.shape, dtype=dtype)
    return torch.frombuffer(bytearray(x.data), dtype=dtype).reshape(x.shape)
