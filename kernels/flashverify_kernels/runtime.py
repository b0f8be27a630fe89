"""What the process and the device can run: compiled on a GPU, or interpreted."""

import functools

import torch
import triton

from flashverify_kernels.config import SHARED_MEMORY

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Whether the kernels of this process run in Triton's interpreter: TRITON_INTERPRET when this package was imported."""


def supported(dtype: torch.dtype) -> str | None:
    """Why this process cannot compute attention in `dtype`, or None if it can."""
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"{dtype} is not one of float16, bfloat16, float32"
    if INTERPRETED and dtype == torch.bfloat16:
        return "Triton's interpreter computes bfloat16 wrongly: it multiplies bit patterns and truncates casts"
    return None


def device_error(device: torch.device) -> str | None:
    """Why the kernels of this process cannot run on `device`, or None if they can."""
    if device.type not in ("cpu", "cuda"):
        return f"expected a CUDA or CPU tensor, got {device}"
    if INTERPRETED:
        return None
    if device.type == "cpu":
        return "CPU tensors need Triton's interpreter: set TRITON_INTERPRET=1 before importing triton"
    if torch.version.hip is not None:
        return "ROCm devices are not supported"
    return None


def compute_capability(x: torch.Tensor) -> tuple[int, int] | None:
    """That of the GPU on which compiled kernels compute with `x`; None for what is no tensor of a GPU, and where kernels are interpreted."""
    if INTERPRETED or not isinstance(x, torch.Tensor) or not x.is_cuda:
        return None
    return torch.cuda.get_device_capability(x.device)


def shared_memory_limit(device: torch.device) -> int:
    """Shared memory that one block may use on `device`, bytes."""
    if INTERPRETED or device.type != "cuda":
        return SHARED_MEMORY
    return _shared_memory(device.index or 0)


@functools.cache  # asking the driver takes a millisecond, longer than most launches
def _shared_memory(index: int) -> int:
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


def readable(x: torch.Tensor) -> bool:
    """Whether the values of `x` are there and can be read without waiting for a GPU."""
    return x.device.type == "cpu" and type(x) is torch.Tensor
