"""Where the bundled kernels have a second path, the kernels for Hopper GPUs: which cases may take it unasked, and where it is drawn."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from flashverify.subjects.registry import has_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case

__all__ = ["HOPPER_FILES", "hopper_capability", "hopper_is_drawn", "may_be_asked"]

HOPPER_FILES = ("hopper.py", "hopper_arguments.py", "hopper_programs.py", "ragged.py", "device/hopper/")
"""Files of the kernel package, and a folder, that only this path runs."""

_ELEMENTS = 8
"""Elements of 16 bits in the 16 bytes of which addresses and steps must be multiples."""


def may_be_asked(case: Case) -> bool:
    """Whether the tensors of `case` and its terms are such that the kernels may be chosen by default, see `hopper.may_be_asked`."""
    storage = case.storage
    aligned = storage.offset % _ELEMENTS == 0 and storage.gap % _ELEMENTS == 0
    addressable = aligned and not storage.expand and not storage.transposed and storage.page_size is None
    filled = 0 not in (case.batch, case.seq_q, case.seq_k)
    return addressable and filled and not case.logits.sink


def hopper_capability(module: Callable[[str], Any]) -> tuple[int, int] | None:
    """The compute capability of the GPU of this process where it has the kernels; None elsewhere, and where kernels are interpreted.

    Args:
        module: loads a module of the kernel package by its name.
    """
    if module("runtime").INTERPRETED:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    capability = torch.cuda.get_device_capability()
    return capability if module("hopper").available(capability) else None


def hopper_is_drawn(module: Callable[[str], Any]) -> bool:
    """Whether this process launches on a GPU that has the kernels; imports nothing where that is plain without.

    Args:
        module: as in `hopper_capability`.
    """
    if os.environ.get("TRITON_INTERPRET") == "1" or not ("torch" in sys.modules or has_gpu()):
        return False
    return hopper_capability(module) is not None
