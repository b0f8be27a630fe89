"""Which GPU a worker of xdist uses: the workers take turns over those that are visible."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["gpu_of", "visible_gpus"]

_DEVICES = Path("/dev")


def visible_gpus(environ: Mapping[str, str], devices: Path = _DEVICES) -> tuple[str, ...]:
    """The GPUs as `CUDA_VISIBLE_DEVICES` names them, or by number; answered without importing torch.

    Args:
        environ: of the process.
        devices: folder of the device files.
    """
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(word.strip() for word in named.split(",") if word.strip() not in ("", "-1"))
    numbers = sorted(int(path.name[6:]) for path in devices.glob("nvidia*") if path.name[6:].isdigit())
    return tuple(map(str, range(len(numbers))))


def gpu_of(worker: str, gpus: tuple[str, ...]) -> str:
    """The GPU of the xdist worker `gw0`, `gw1`, ...; empty where there is one at most, or no such worker."""
    number = re.search(r"\d+$", worker)
    return gpus[int(number[0]) % len(gpus)] if number is not None and len(gpus) > 1 else ""
