"""How a worker ends whose case made the GPU unusable."""

from __future__ import annotations

import os
import sys

from flashverify.campaign.supervisor.process import DEVICE_LOST, LOST

__all__ = ["leave_a_lost_device"]


def leave_a_lost_device() -> None:
    """Dies where the case has made the GPU unusable for this process, so that it is the case in flight that is blamed, not those after it."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception as error:
        print(f"{LOST}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        os._exit(DEVICE_LOST)
