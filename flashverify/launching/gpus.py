"""What is known of GPUs by compute capability: what a kernel's host code looks up before it launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashverify.errors import UsageError

__all__ = ["GPUS", "Gpu", "require_capability"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU.

    Args:
        name: as torch.cuda.get_device_name returns it.
        processors: streaming multiprocessors.
        shared: largest shared memory of a block, bytes.
        memory: of the device, bytes.
        cache: second level, bytes.
        threads: largest number of threads of a multiprocessor.
    """

    name: str
    processors: int
    shared: int
    memory: int
    cache: int
    threads: int


GPUS = {
    (7, 5): Gpu(name="Tesla T4", processors=40, shared=64 << 10, memory=16 << 30, cache=4 << 20, threads=1024),
    (8, 0): Gpu(name="NVIDIA A100", processors=108, shared=163 << 10, memory=80 << 30, cache=40 << 20, threads=2048),
    (8, 6): Gpu(name="NVIDIA A10", processors=72, shared=99 << 10, memory=24 << 30, cache=6 << 20, threads=1536),
    (8, 9): Gpu(name="NVIDIA L4", processors=58, shared=99 << 10, memory=24 << 30, cache=48 << 20, threads=1536),
    (9, 0): Gpu(name="NVIDIA H100", processors=132, shared=227 << 10, memory=80 << 30, cache=50 << 20, threads=2048),
    (10, 0): Gpu(name="NVIDIA B200", processors=148, shared=227 << 10, memory=180 << 30, cache=126 << 20, threads=2048),
    (12, 0): Gpu(
        name="NVIDIA RTX 5090", processors=170, shared=99 << 10, memory=32 << 30, cache=96 << 20, threads=1536
    ),
}
"""By compute capability."""


def require_capability(argument: str, capability: Any) -> None:
    """Checks that a compute capability is known.

    Args:
        argument: under which the caller passed it.
        capability: (major, minor).

    Raises:
        UsageError: it is not.
    """
    if not isinstance(capability, tuple) or capability not in GPUS:
        raise UsageError(f"{argument}={capability!r} is not accepted: one of {', '.join(map(str, GPUS))}")
