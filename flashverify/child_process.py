"""The environment of a process that runs a part of flashverify in a mode of Triton of its own."""

from __future__ import annotations

import os
import sys

__all__ = ["VISIBLE", "child_environment"]

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees."""


def child_environment(*, interpret: bool) -> dict[str, str]:
    """This process's environment with its import path; the mode of Triton is fixed before anything is imported.

    A process that interprets sees no GPU: it judges as on a machine without one, and torch starts no threads for GPUs, beside which no
    child of it could differentiate.

    Args:
        interpret: kernels run in Triton's interpreter.
    """
    path = [os.path.abspath(entry) if entry else os.getcwd() for entry in sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
    environment.pop("TRITON_INTERPRET", None)
    return environment | ({"TRITON_INTERPRET": "1", VISIBLE: ""} if interpret else {})
