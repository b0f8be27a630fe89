"""The machine: which device and numerics a run takes, and what is recorded of it. No verdict depends on what is recorded."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from flashverify.errors import UsageError

__all__ = [
    "DEVICES",
    "NUMERICS",
    "architecture",
    "capability",
    "collect",
    "cpu_count",
    "evidence",
    "resolve_device",
    "resolve_numerics",
    "versions",
]

DEVICES = ("auto", "cpu", "cuda")
NUMERICS = ("ieee", *(f"{gpu}{error}" for gpu in ("h100", "a100") for error in ("", "+2ulp", "-2ulp", "+0ulp")))
"""Names of the modes in `flashverify.interpreter.hardware`, which cannot be imported without torch."""
_PACKAGES = ("flashverify", "torch", "triton", "numpy", "hypothesis", "mpmath")


def resolve_device(device: str) -> str:
    """`cpu` or `cuda`.

    Raises:
        UsageError: the device is unknown, or `cuda` is asked for on a machine without an NVIDIA GPU.
    """
    if device not in DEVICES:
        raise UsageError(f"device={device!r} is not accepted: one of {', '.join(DEVICES)}")
    from flashverify.subjects import has_gpu

    if device == "cuda" and not has_gpu():
        raise UsageError("device='cuda' is not accepted: this machine has no NVIDIA GPU; use cpu or auto")
    return ("cuda" if has_gpu() else "cpu") if device == "auto" else device


def resolve_numerics(numerics: str | None, device: str) -> str:
    """The numerics of interpreted kernels, `ieee` by default.

    Args:
        numerics: asked for, or None.
        device: resolved.

    Raises:
        UsageError: they are unknown, or kernels are compiled.
    """
    if numerics is not None and numerics not in NUMERICS:
        raise UsageError(f"numerics={numerics!r} is not accepted: one of {', '.join(NUMERICS)}")
    if device != "cpu" and numerics not in (None, "ieee"):
        raise UsageError(f"numerics={numerics!r} is not accepted: kernels are compiled on {device}; use --device cpu")
    return numerics or "ieee"


def evidence(device: str, numerics: str) -> str:
    """What a verdict rests on where its subject could not say."""
    if device != "cpu":
        return device
    return "interpreter" if numerics == "ieee" else f"interpreter ({numerics})"


def cpu_count() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Of Python and of the packages that draws and verdicts depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def collect(device: str = "") -> dict[str, str]:
    """Versions, machine and commit, as text; imports neither torch nor triton.

    Args:
        device: resolved device of the run, recorded together with the mode that Triton runs in.
    """
    found = versions() | {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": str(cpu_count()),
    }
    if device:
        found["device"] = device
        found["triton_mode"] = "interpreter" if device == "cpu" else "compiled"
    return found | _commit() | gpu()


def architecture() -> str:
    """Of the GPUs of this machine, such as `sm_90`, by NVIDIA's own tool; empty where it is not there or the GPUs differ. Imports no torch."""
    command = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    major, _, minor = ",".join(sorted(set(done.stdout.split()))).partition(".")
    return f"sm_{major}{minor}" if major.isdigit() and minor.isdigit() else ""


def capability(arch: str) -> str:
    """`9.0` for `sm_90`; empty where it is unknown."""
    digits = arch.removeprefix("sm_")
    return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() else ""


def gpu() -> dict[str, str]:
    """Name, architecture and driver of the GPU, where this process has imported torch and can see one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    major, minor = torch.cuda.get_device_capability()
    found = {
        "gpu": str(torch.cuda.get_device_name()),
        "gpu_arch": f"sm_{major}{minor}",
        "cuda": str(torch.version.cuda),
    }
    with suppress(OSError, IndexError):
        found["gpu_driver"] = (
            Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split("Kernel Module", 1)[1].split()[0]
        )
    return found


def _commit() -> dict[str, str]:
    def git(*words: str) -> str:
        done = subprocess.run(("git", *words), capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return {"commit": commit + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")}
    except (OSError, subprocess.SubprocessError):
        return {}
