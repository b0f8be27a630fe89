"""A row of the page of speeds: named, built where it is timed, and its measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

__all__ = ["Built", "Row", "Timed", "copied", "normal", "sizes"]


class Row(msgspec.Struct, frozen=True):
    """What is timed.

    Attributes:
        theme: the table that it stands in.
        name: in that table.
        build: `module:function` in `speed_rows`, which makes its calls.
        values: arguments of that function.
    """

    theme: str
    name: str
    build: str
    values: dict[str, Any] = {}


@dataclass(frozen=True)
class Built:
    """The calls of a row, ready to be timed.

    Args:
        calls: by name; the first is that of the bundled kernels.
        work: floating point operations of one call, or bytes that it must read; 0 where neither is meant.
        unit: `TFLOP/s`, `share of a copy`, `of the dense time` or `us of CPU time`.
        share: the part of the work of `dense` that the first call has, where the unit is a share of its time.
    """

    calls: dict[str, Callable[[], object]]
    work: float
    unit: str
    share: float = 1.0


class Timed(msgspec.Struct, frozen=True):
    """What a row gave.

    Attributes:
        milliseconds: median, by call.
        values: in the unit, by call.
        reason: why there are none.
    """

    theme: str
    name: str
    unit: str = ""
    milliseconds: dict[str, float] = {}
    values: dict[str, float] = {}
    reason: str = ""


def normal(*shape: int, dtype: str, device: str, grad: bool = False) -> torch.Tensor:
    """A normal tensor of a seed."""
    import torch

    dtypes = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
    generator = torch.Generator(device).manual_seed(len(shape) + sum(shape))
    found = torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtypes[dtype])
    return found.requires_grad_(grad)


def copied(*tensors: torch.Tensor) -> Callable[[], object]:
    """A copy of the tensors' bytes into tensors that are there."""
    import torch

    targets = [torch.empty_like(x) for x in tensors]
    return lambda: [target.copy_(x) for target, x in zip(targets, tensors, strict=True)]


def sizes(*tensors: torch.Tensor) -> int:
    """Bytes."""
    return sum(x.numel() * x.element_size() for x in tensors)
