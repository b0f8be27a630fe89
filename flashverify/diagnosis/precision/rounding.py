"""Float64 values rounded or cut off to a narrower format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Rounding = Callable[[Tensor], Tensor]

__all__ = ["NARROW", "same", "to_bits", "to_dtype", "truncated"]

_TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_KEPT = {"bf16": -(1 << 16), "fp16": -(1 << 13), "tf32": -(1 << 13)}
"""The bits of an fp32 number that a normal number of the format keeps."""


def same(x: Tensor) -> Tensor:
    """No rounding."""
    return x


def to_dtype(name: str) -> Rounding:
    """Rounds to nearest even."""
    if name == "tf32":
        return lambda x: _cut(x * (1 + 2.0**-11), "tf32")  # to nearest, but for ties
    return lambda x: x.to(_TORCH[name]).double()


def truncated(name: str) -> Rounding:
    """Cuts off towards zero."""
    return lambda x: _cut(x, name)


def _cut(x: Tensor, name: str) -> Tensor:
    return (x.float().view(torch.int32) & _KEPT[name]).view(torch.float32).double()


def to_bits(count: int) -> Rounding:
    """Rounds to so many significant bits, the leading one among them."""

    def rounded(x: Tensor) -> Tensor:
        part, exponent = torch.frexp(x)
        return torch.ldexp((part * 2.0**count).round(), exponent - count)

    return rounded


NARROW: dict[str, Rounding] = {
    "rounded to bf16": to_dtype("bf16"),
    "rounded to fp16": to_dtype("fp16"),
    "truncated to bf16": truncated("bf16"),
    "truncated to fp16": truncated("fp16"),
}
"""By their words, the roundings that a step may be given."""
