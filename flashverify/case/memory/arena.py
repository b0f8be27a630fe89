"""Guarded storage of the inputs: strided views into poisoned buffers that remember what they held."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.memory.damage import Damage
from flashverify.case.memory.transfers import any_of, to_device
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    import torch

    from flashverify.case.values.bits import Bits

__all__ = ["GUARD", "Arena", "Damage", "Placement"]

GUARD = 4096
"""Elements before and after each tensor: 8 KiB or more, several rows of a tile; a multiple of 256 bytes for every dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the elements of a tensor lie in its buffer.

    Attributes:
        shape: of the logical view.
        strides: of the view, elements; 0 where elements are shared.
        extent: elements from the first to one past the last, a last gap included.
        offset: elements between the guard band and the first element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    extent: int
    offset: int = 0

    @property
    def start(self) -> int:
        """Index of the first element in the buffer."""
        return GUARD + self.offset

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return self.start + self.extent + GUARD

    @property
    def dense(self) -> bool:
        """Whether every element from the first to the last belongs to the view, which has any."""
        apart = (n for n, stride in zip(self.shape, self.strides, strict=True) if stride)
        return math.prod(self.shape) > 0 and math.prod(apart) == self.extent

    def places(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Index in the buffer of every element of the view."""
        total = np.full(self.shape, self.start, dtype=np.int64)
        for axis, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            total += (np.arange(n) * stride).reshape((-1,) + (1,) * (len(self.shape) - axis - 1))
        return total


@dataclass(frozen=True, slots=True)
class _Buffer:
    name: str
    view: torch.Tensor
    raw: torch.Tensor  # the same bits as integers
    snapshot: torch.Tensor
    placement: Placement


class Arena:
    """The buffers of one problem's inputs. Keep it while the subject runs, then ask for the damage."""

    def __init__(self) -> None:
        self._buffers: list[_Buffer] = []

    def add(self, name: str, bits: Bits, placement: Placement, dtype: str, device: torch.device | str) -> torch.Tensor:
        """Takes over a filled buffer and returns the tensor in it.

        Args:
            name: of the tensor, as damage names it.
            bits: the whole buffer, `placement.size` elements.
            placement: where the tensor lies in it.
            dtype: `fp16`, `bf16`, `fp32`, `int32`, `bool` or `uint8`.
            device: where the tensor is to be.
        """
        import torch

        raw = to_device(torch.from_numpy(bits.view(f"i{bits.itemsize}")), device)
        kind = (
            FORMATS[dtype].dtype
            if dtype in FORMATS
            else {"int32": torch.int32, "bool": torch.bool, "uint8": torch.uint8}[dtype]
        )
        view = raw.view(kind).as_strided(placement.shape, placement.strides, placement.start)
        self._buffers.append(_Buffer(name, view, raw, raw.clone(), placement))
        return view

    def damage(self) -> list[Damage]:
        """What has changed since the tensors were made, bit by bit; at most one entry per tensor and kind.

        On a GPU it waits for the work that was queued before it.
        """
        changed = any_of([buffer.raw != buffer.snapshot for buffer in self._buffers])
        return [each for buffer, flag in zip(self._buffers, changed, strict=True) if flag for each in _describe(buffer)]

    def restore(self) -> None:
        """Have every buffer hold what it held when it was added, its gaps and guard bands too."""
        for buffer in self._buffers:
            buffer.raw.copy_(buffer.snapshot)


def _describe(buffer: _Buffer) -> list[Damage]:
    changed = (buffer.raw != buffer.snapshot).cpu().numpy()
    places = buffer.placement.places()
    inside = np.zeros_like(changed)
    inside[places.reshape(-1)] = True
    found: list[Damage] = []
    hits = changed[places]
    if hits.any():
        index = tuple(int(i) for i in np.argwhere(hits)[0])
        count = int((changed & inside).sum())
        message = (
            f"{buffer.name}{list(index)} was overwritten with {buffer.view[index].item()!r} ({count} elements changed)"
        )
        found.append(Damage(buffer.name, "input", index, message))
    outside = np.flatnonzero(changed & ~inside)
    if outside.size:
        start, extent = buffer.placement.start, buffer.placement.extent
        first = int(outside[0]) - start
        where = "before the tensor" if first < 0 else "behind the tensor" if first >= extent else "between its rows"
        message = f"{buffer.name}: memory {where} was overwritten, {first} elements from its start ({outside.size} elements changed)"
        found.append(Damage(buffer.name, "guard", (first,), message))
    return found


def contiguous(shape: tuple[int, ...]) -> Placement:
    """The placement of a tensor without gaps, outermost axis first."""
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Placement(shape=shape, strides=strides, extent=math.prod(shape))
