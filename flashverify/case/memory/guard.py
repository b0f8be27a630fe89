"""Guard bands and poison around the memory that a subject allocates through torch in Python."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.case.memory.damage import Damage
from flashverify.case.memory.transfers import any_of
from flashverify.errors import UsageError
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

__all__ = ["GUARD_BYTES", "Damage", "Guard", "guard_outputs"]

GUARD_BYTES = 4096
"""Before and after each allocation; a multiple of every alignment that kernels ask for."""

_POISON = {
    **{entry.library: entry.unwritten for entry in FORMATS.values()},
    "int16": (0x5AA5, 0xA55A),
    "int32": (0x5AA5C33C, 0xA55A3CC3),
    "int64": (0x5AA5C33C96690FF0, 0xA55A3CC36996F00F),
}
"""Bit patterns of uninitialised memory by dtype: quiet NaNs with payloads that no arithmetic produces, markers for integers.

No pattern is the upper half of another, so that a conversion of poison is not taken for poison.
"""
_INTEGERS = {2: "int16", 4: "int32", 8: "int64"}


@dataclass(frozen=True, slots=True)
class _Allocation:
    """One guarded allocation: the whole buffer as integers of the element's size, and the tensor's place in it."""

    raw: torch.Tensor
    dtype: torch.dtype
    start: int
    extent: int
    poison: int
    filled: bool  # the caller asked for a content: zeros, full

    def bands_changed(self) -> torch.Tensor:
        """The elements of the guard bands that do not hold what was put there: bool `[2, start]`, before and behind."""
        return self.raw.as_strided((2, self.start), (self.start + self.extent, 1)) != self.poison


class Guard:
    """Allocates guarded tensors and judges them. Made by `guard_outputs`; it stays valid after the block.

    Buffers are kept alive as long as the guard, so that an address names one allocation.
    """

    def __init__(self, pattern: int) -> None:
        self.pattern = pattern
        self._allocations: dict[int, _Allocation] = {}

    def surround(self, tensor: torch.Tensor, *, filled: bool) -> torch.Tensor:
        """A guarded tensor with the shape, strides, dtype and device of `tensor`, or `tensor` where it cannot be guarded.

        Args:
            tensor: freshly allocated.
            filled: keep its content; otherwise the content is poison.
        """
        import torch

        word = self._word(tensor)
        if word is None:
            return tensor
        size = tensor.itemsize
        band = GUARD_BYTES // size
        extent = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
        raw = torch.full((extent + 2 * band,), word, dtype=getattr(torch, _INTEGERS[size]), device=tensor.device)
        guarded = raw.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), band)
        if filled:
            guarded.copy_(tensor)
        self._allocations[raw.untyped_storage().data_ptr()] = _Allocation(raw, tensor.dtype, band, extent, word, filled)
        return guarded

    def adopt(self, made: torch.Tensor, *, filled: bool) -> torch.Tensor:
        """A tensor in memory of its own, watched without bands: poisoned unless it is filled. It is of a kind that can be guarded."""
        import torch

        word = self._word(made)
        assert word is not None
        raw = made.view(getattr(torch, _INTEGERS[made.itemsize]))
        if not filled:
            raw.fill_(word)
        self._allocations[made.untyped_storage().data_ptr()] = _Allocation(
            raw, made.dtype, 0, made.numel(), word, filled
        )
        return made

    def made_contiguous(self, tensor: torch.Tensor) -> None:
        """Told of each tensor whose contiguous copy is made inside the block."""

    def _word(self, tensor: torch.Tensor) -> int | None:
        """The poison of a tensor, a signed integer; None where the tensor cannot be guarded."""
        import torch

        if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda") or tensor.numel() == 0:
            return None
        poison = _poison(tensor.dtype, self.pattern)
        return None if tensor.device.type == "cpu" and tensor.is_pinned() else poison

    def is_guarded(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` lies in memory that this guard surrounds."""
        return self._find(tensor) is not None

    def unwritten(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Elements that still hold the poison, bit for bit: a bool tensor shaped as `tensor`.

        None where that cannot be told: the memory is not guarded, or was allocated as another dtype. All false where the
        memory was allocated with a content.
        """
        import torch

        found = self._find(tensor)
        if found is None or found.dtype != tensor.dtype:
            return None
        if found.filled:
            return torch.zeros_like(tensor, dtype=torch.bool)
        return tensor.detach().view(found.raw.dtype) == found.poison

    def poison(self, tensor: torch.Tensor) -> int | None:
        """The bits, as a signed integer, of the elements of `tensor` that nobody has written; None where `unwritten` is."""
        found = self._find(tensor)
        return None if found is None or found.filled or found.dtype != tensor.dtype else found.poison

    def damage(self) -> list[Damage]:
        """Allocations whose guard bands changed, named in the order in which they were made."""
        banded = [(number, each) for number, each in enumerate(self._allocations.values()) if each.start]
        changed, found = [each.bands_changed() for _, each in banded], list[Damage]()
        for (number, allocation), bands, flag in zip(banded, changed, any_of(changed), strict=True):
            if flag:
                side, place = bands.nonzero()[0].tolist()
                first = place + (allocation.extent if side else -allocation.start)
                name, count = f"alloc {number}", int(bands.sum())
                kind = f"{allocation.dtype}, {allocation.extent} elements"
                message = f"{name} ({kind}): written {'behind' if side else 'before'} the buffer, {first} elements from its start ({count} elements)"
                found.append(Damage(name, "guard", (first,), message))
        return found

    def _find(self, tensor: torch.Tensor) -> _Allocation | None:
        return self._allocations.get(tensor.untyped_storage().data_ptr())


@contextmanager
def guard_outputs(*, pattern: int = 0) -> Iterator[Guard]:
    """Guards what is allocated by torch's factory functions inside the block, on the CPU and on GPUs.

    Memory without a content (`empty` and its kin) holds a bit pattern that `Guard.unwritten` looks for; `zeros`, `full`
    and their kin get guard bands and the content asked for. Strides are kept; empty tensors and dtypes of one byte pass
    through. Allocations made in C++ are not seen.

    Args:
        pattern: which of two poisons, 0 or 1.

    Raises:
        UsageError: the pattern is neither 0 nor 1.
    """
    if pattern not in (0, 1):
        raise UsageError(f"pattern={pattern!r} is not accepted: 0 or 1")
    from flashverify.case.memory.guard_mode import guard_mode

    guard = Guard(pattern)
    with guard_mode(guard):
        yield guard


@functools.cache
def _poison(dtype: torch.dtype, pattern: int) -> int | None:
    """The bits of a dtype that nobody has written, a signed integer; None where it has none."""
    words = _POISON.get(str(dtype).removeprefix("torch."))
    return None if words is None else _signed(words[pattern], 8 * dtype.itemsize)


def _signed(word: int, bits: int) -> int:
    return word - (1 << bits) if word >> (bits - 1) else word
