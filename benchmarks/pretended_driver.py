"""Triton's own driver over a library that launches nothing: all that a launch costs the CPU but the work of NVIDIA's driver."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).with_name("pretended_driver.c")
_NAME = "libcuda.so.1"


def pretend(folder: Path) -> Any:
    """Give Triton a Hopper GPU, and the bundled kernels tensors of the CPU that count as its own.

    Args:
        folder: where the library is built; it must stay there.

    Returns:
        The library; `pretended_launches()` says how many launches it was asked for.
    """
    import triton.backends.nvidia.driver as nvidia

    library = folder / _NAME
    include = Path(nvidia.__file__).with_name("include")
    compiler = os.environ.get("CC", "gcc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", f"-I{include}", f"-Wl,-soname,{_NAME}", "-o", str(library), str(_SOURCE)],
        check=True,
    )
    os.environ["TRITON_LIBCUDA_PATH"] = str(folder)
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)  # which later requests by name find
    loaded.pretended_launches.restype = ctypes.c_ulonglong
    _take_driver(nvidia)
    _take_tensors()
    return loaded


def _take_driver(nvidia: Any) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Driver(nvidia.CudaDriver):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.utils = nvidia.CudaUtils()
            self.launcher_cls = nvidia.CudaLauncher
            self.get_current_device = _zero
            self.get_current_stream = _zero
            self.get_device_capability = lambda *_: (9, 0)

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

    driver.set_active(Driver())


def _zero(*_: Any) -> int:
    return 0


def _take_tensors() -> None:
    from flashverify_kernels import hopper, launch, plans, validation

    validation.device_error = lambda _device: None
    for module in (launch, hopper):
        module.compute_capability = lambda _x: (9, 0)  # type: ignore[attr-defined]
    plans._device = lambda x: 0 if not x.is_cuda and x.get_device() < 0 else None  # the same questions
