"""Where a verdict comes from: every verdict carries it."""

from __future__ import annotations

import functools
import sys

__all__ = ["CPU", "INTERPRETER", "evidence_on"]

CPU = "cpu"
INTERPRETER = "interpreter"


def evidence_on(device: str, *, triton: bool | None = None) -> str:
    """`interpreter`, `cpu`, or the GPU's name and architecture.

    Args:
        device: `cpu` or `cuda`.
        triton: whether the subject's kernels are Triton's; None where that is unknown, then it is assumed of a process that
            has imported triton.
    """
    if device == "cpu":
        loaded = sys.modules.get("triton")
        interpreted = loaded is not None and bool(loaded.knobs.runtime.interpret)
        return INTERPRETER if interpreted and triton is not False else CPU
    return _gpu()


@functools.cache
def _gpu() -> str:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} (sm_{major}{minor})"
