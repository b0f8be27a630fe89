"""Where a verdict comes from: every verdict carries it."""

from __future__ import annotations

import functools
import sys

__all__ = ["CPU", "INTERPRETER", "evidence_on", "interpreted_as"]

CPU = "cpu"
INTERPRETER = "interpreter"


def interpreted_as() -> tuple[str, str]:
    """Name and architecture of the numerics of interpreted kernels; `ieee` for both unless a session chose others."""
    loaded = sys.modules.get("flashverify.interpreter.hardware")
    if loaded is None:
        return "ieee", "ieee"
    current = loaded.current()
    return current.name, current.architecture


def evidence_on(device: str, *, triton: bool | None = None) -> str:
    """`interpreter` with its numerics where these are not `ieee`, `cpu`, or the GPU's name and architecture.

    Args:
        device: `cpu` or `cuda`.
        triton: whether the subject's kernels are Triton's; None where that is unknown, then it is assumed of a process that
            has imported triton.
    """
    if device == "cpu":
        loaded = sys.modules.get("triton")
        interpreted = loaded is not None and bool(loaded.knobs.runtime.interpret)
        if not interpreted or triton is False:
            return CPU
        numerics, _ = interpreted_as()
        return INTERPRETER if numerics == "ieee" else f"{INTERPRETER} ({numerics})"
    return _gpu()


@functools.cache
def _gpu() -> str:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} (sm_{major}{minor})"
