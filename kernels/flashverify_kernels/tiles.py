"""Descriptors of tensors whose tiles the copy engine of a GPU fetches: another way to the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify_kernels.arguments import constants
from flashverify_kernels.runtime import INTERPRETED
from flashverify_kernels.views import strides

if TYPE_CHECKING:
    from flashverify_kernels.config import Kind, LaunchConfig
    from flashverify_kernels.options import Options
    from flashverify_kernels.validation import CheckedCall

STREAMED: dict[Kind, tuple[str, str]] = {"forward": ("k", "v"), "dq": ("k", "v"), "dkdv": ("q", "do")}
"""The tensors that the loop of a kernel walks."""

_DTYPES = (torch.float16, torch.bfloat16)
_CHANNELS = {16, 32, 64, 128, 256}
_LARGEST_STRIDE = 2**40  # bytes


def tiles(call: CheckedCall, options: Options, kind: Kind, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The descriptors of the tensors that the loop walks, or None for each where its tiles are loaded by pointers.

    Args:
        call: the checked call.
        options: of the call.
        kind: which kernel.
        tensors: with their axes in the order (batch, head, sequence, channel).
    """
    names = STREAMED[kind]
    width = constants(call, kind, tensors)["BLOCK_DV"]
    shapes = tile_shapes(kind, call.configs[kind], call.d, call.dv, tensors["q"].dtype, width)
    if not (
        shapes and options.whole and _by_copy_engine(tensors["q"]) and all(describable(tensors[name]) for name in names)
    ):
        return {f"{name}_tiles": None for name in names}
    return {f"{name}_tiles": _descriptor(tensors[name], shapes[f"{name}_tiles"]) for name in names}


def tile_shapes(
    kind: Kind, config: LaunchConfig, d: int, dv: int, dtype: torch.dtype, width: int
) -> dict[str, tuple[int, int]]:
    """Rows and channels of the tiles that descriptors fetch, by argument; nothing where the choice is to load by pointers.

    A tile of V is as wide as the kernel's own, `width`, which may be more than Dv (`compile_constants`).
    """
    if not config.descriptors or dtype not in _DTYPES or not {d, dv} <= _CHANNELS:
        return {}
    first, second = STREAMED[kind]
    rows = config.block_m if kind == "dkdv" else config.block_n
    return {f"{first}_tiles": (rows, d), f"{second}_tiles": (rows, width)}


def _by_copy_engine(x: torch.Tensor) -> bool:
    """Whether the device of the tensor has a copy engine for tiles, or an interpreter does what that would."""
    return torch.cuda.get_device_capability(x.device) >= (9, 0) if x.is_cuda else INTERPRETED


def describable(x: torch.Tensor, *, every: bool = False) -> bool:
    """Whether the copy engine can address the tensor: steps that are multiples of 16 bytes and move, and not empty.

    Args:
        x: the tensor.
        every: whether the steps of axes of size 1 count too, which are never taken: then a view of some sequences, heads or rows has the
            answer of the whole.
    """
    return (
        x.numel() > 0
        and x.data_ptr() % 16 == 0
        and all(
            step * x.itemsize % 16 == 0 and 0 < step * x.itemsize < _LARGEST_STRIDE
            for step, size in zip(x.stride()[:3], x.shape[:3], strict=True)
            if every or size > 1
        )
    )


def _descriptor(x: torch.Tensor, tile: tuple[int, int]) -> TensorDescriptor:
    steps = [stride or x.shape[3] for stride in strides(x)]  # an axis of size 1 may have any step
    return TensorDescriptor(x, list(x.shape), [*steps, 1], [1, 1, *tile])
