"""Triton's driver of a machine with one GPU: what the host code of kernels looks up of it. It launches nothing."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flashverify.errors import UsageError
from flashverify.launching.gpus import GPUS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["pretended_driver"]


class _Driver:
    """Stands in for `triton.backends.nvidia.driver.CudaDriver`."""

    def __init__(self, capability: tuple[int, int]) -> None:
        from triton.backends.compiler import GPUTarget

        gpu = GPUS[capability]
        self._capability = capability
        self._target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)
        properties = {
            "max_shared_mem": gpu.shared,
            "max_num_regs": 1 << 16,
            "multiprocessor_count": gpu.processors,
            "warpSize": 32,
            "sm_clock_rate": 1_980_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }
        self.utils = SimpleNamespace(get_device_properties=lambda _device: dict(properties))

    @classmethod
    def is_active(cls) -> bool:
        """It is."""
        return True

    def get_current_target(self) -> Any:
        """The target that kernels are compiled for."""
        return self._target

    def get_device_capability(self, *_: Any) -> tuple[int, int]:
        """The compute capability."""
        return self._capability

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def set_current_device(self, device: Any) -> None:
        """There is one."""

    def get_current_stream(self, *_: Any) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> Any:
        """The device that tensors say they lie on."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """The module of torch."""
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        """None can be had.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "timing a kernel is not accepted inside pretend_cuda: there is no GPU. Kernels decorated with @triton.autotune are launched "
            "without it inside `with flashverify.corrected_interpreter():`"
        )


@contextlib.contextmanager
def pretended_driver(capability: tuple[int, int]) -> Iterator[None]:
    """Until the end of the block `triton.runtime.driver.active` is a GPU of a capability; nothing where Triton is not installed.

    Args:
        capability: (major, minor).
    """
    try:
        from triton.runtime import driver
    except ImportError:
        yield
        return
    names = [name for name in ("_default", "_active") if hasattr(driver, name)]
    before = {name: getattr(driver, name) for name in names}
    made = _Driver(capability)
    try:
        for name in names:
            setattr(driver, name, made)
        yield
    finally:
        for name, value in before.items():
            setattr(driver, name, value)
