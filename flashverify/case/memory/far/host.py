"""Tensors in the host's memory that span more addresses than they touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.far.strides import span
from flashverify.sparse_memory import sparse

if TYPE_CHECKING:
    import torch

__all__ = ["host_tensor"]

_BAND = 4096
"""Elements before the first one and behind the last one."""


def host_tensor(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor that holds 0.

    Args:
        shape: of it.
        strides: in elements.
        dtype: of it.

    Raises:
        OSError: the system does not give so many addresses.
    """
    import torch

    size = span(shape, strides) + 2 * _BAND
    flat = torch.frombuffer(sparse(size * dtype.itemsize), dtype=dtype, count=size)
    return flat.as_strided(shape, strides, _BAND)
