"""Descriptors of tensors whose tiles the copy engine of a GPU fetches: another way to the same values."""

from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify_kernels.config import Kind
from flashverify_kernels.options import Options
from flashverify_kernels.validation import CheckedCall
from flashverify_kernels.views import strides

STREAMED: dict[Kind, tuple[str, str]] = {"forward": ("k", "v"), "dq": ("k", "v"), "dkdv": ("q", "do")}
"""The tensors that the loop of a kernel walks."""

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
    config = call.configs[kind]
    rows = config.block_m if kind == "dkdv" else config.block_n
    fetched = config.descriptors and _whole(options) and all(_describable(tensors[name]) for name in names)
    return {f"{name}_tiles": _descriptor(tensors[name], rows) if fetched else None for name in names}


def _whole(options: Options) -> bool:
    """Whether every row of the tensors counts, so that the end of a tensor is the only end that a tile may pass."""
    return options.packed is None and options.query_lengths is None and options.key_lengths is None


def _describable(x: torch.Tensor) -> bool:
    """Whether the copy engine can address the tensor: 16-byte steps that move, a power of two of channels, nothing empty."""
    channels = x.shape[3]
    steps = strides(x)
    return (
        x.dtype in (torch.float16, torch.bfloat16)
        and x.numel() > 0
        and x.stride(3) == 1
        and channels in (16, 32, 64, 128, 256)
        and x.data_ptr() % 16 == 0
        and all(
            step * x.itemsize % 16 == 0 and 0 < step * x.itemsize < _LARGEST_STRIDE
            for step, size in zip(steps, x.shape[:3], strict=True)
            if size > 1
        )
    )


def _descriptor(x: torch.Tensor, rows: int) -> TensorDescriptor:
    steps = [stride or x.shape[3] for stride in strides(x)]  # an axis of size 1 may have any step
    return TensorDescriptor(x, list(x.shape), [*steps, 1], [1, 1, rows, x.shape[3]])
