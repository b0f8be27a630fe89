"""Tensors as the kernels see them: a pointer and strides."""

import torch

from flashverify_kernels.device.arguments import PartView, View


def view(x: torch.Tensor | None) -> View:
    """A tensor of 4 axes, or none."""
    return View(None, 0, 0, 0) if x is None else View(x, *strides(x))


def part_view(x: torch.Tensor) -> PartView:
    """A tensor of 5 axes, parts first."""
    return PartView(x, *strides(x))


def strides(x: torch.Tensor) -> tuple[int, ...]:
    """Strides of all axes but the last, elements; an axis of size 1 has none that matters."""
    return tuple(0 if size == 1 else stride for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True))
