"""Memory of which only the touched pages cost anything, however large it is. Imports no torch."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np

__all__ = ["sparse", "zeros"]

_NO_RESERVE = {"linux": 0x4000, "darwin": 0x40}.get(sys.platform, 0)
"""MAP_NORESERVE: the system does not count the pages before they are touched."""
_LARGE = 1 << 26
"""Bytes from which on an array of zeros is mapped without a reservation."""


def sparse(nbytes: int) -> mmap.mmap:
    """Anonymous memory that reads as 0.

    Args:
        nbytes: its size, at least 1.

    Raises:
        OSError: the system does not give so many addresses, as under a limit of them or without overcommitment.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):
        raise OSError("this system maps no private anonymous memory")
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)


def zeros(size: int, dtype: Any) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """As `numpy.zeros` of one axis; a large array is `sparse`.

    Args:
        size: elements.
        dtype: of numpy.
    """
    nbytes = size * np.dtype(dtype).itemsize
    return np.zeros(size, dtype) if nbytes < _LARGE else np.frombuffer(sparse(nbytes), dtype, size)
