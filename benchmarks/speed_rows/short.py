"""Short sequences: what a call costs the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speed_rows.row import Built, Row, normal

if TYPE_CHECKING:
    import torch

__all__ = ["call", "rows"]


def rows(small: bool) -> list[Row]:
    """Both passes."""
    values = {"length": 64 if small else 512}
    return [
        Row("512 tokens, D = 64", direction, "short:call", values | {"direction": direction})
        for direction in ("forward", "backward")
    ]


def call(*, device: str, length: int, direction: str) -> Built:
    """A call that the CPU does not wait for."""
    import torch

    import flashverify_kernels as kernels

    q, k, v = (normal(1, 16, length, 64, dtype="fp16", device=device, grad=True) for _ in "qkv")
    o = kernels.attention(q, k, v)
    do = torch.ones_like(o)

    def forward() -> object:
        return kernels.attention(q, k, v)

    def backward() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(o, (q, k, v), do, retain_graph=True)

    return Built({"bundled": forward if direction == "forward" else backward}, 0.0, "us of CPU time")
