"""Which GPU a worker of xdist uses."""

from __future__ import annotations

import re

from flashverify.campaign.gpus import gpu_of_worker

__all__ = ["gpu_of"]


def gpu_of(worker: str, gpus: tuple[str, ...]) -> str:
    """The GPU of the xdist worker `gw0`, `gw1`, ...; empty where there is one at most, or no such worker."""
    number = re.search(r"\d+$", worker)
    return gpu_of_worker(int(number[0]), gpus) if number is not None and len(gpus) > 1 else ""
