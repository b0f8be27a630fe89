"""What buffers hold where nothing is stored: one poison, or one for each head."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from flashverify.case.sections import PLAIN_POISONS
from flashverify.case.values import philox
from flashverify.case.values.bits import to_bits
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from flashverify.case.memory.arena import Placement
    from flashverify.case.values.bits import Bits

__all__ = ["plain_poison", "poison_heads", "poisoned"]

_INTEGERS = {
    "zero": 0,
    "dirt": 0x2345_6789,
    "max": 0x7FFF_FFFF,
    "inf": 0x7FFF_FFFF,
    "-inf": 0x8000_0000,
    "nan": 0xFFFF_FFFF,
}

_BYTES = {"zero": 0, "max": 0x7E, "inf": 0x7C, "-inf": 0xFC, "nan": 0x7F}


def plain_poison(poison: str, seed: int, number: int = 0) -> str:
    """A poison that is one: of `mixed` that of the seed, and with a number that many steps on in the list."""
    return PLAIN_POISONS[(seed + number) % len(PLAIN_POISONS)] if poison == "mixed" else poison


def poisoned(size: int, dtype: str, poison: str, seed: int, name: str, written: tuple[int, int] | None = None) -> Bits:
    """A buffer of `size` elements that holds nothing but `poison`; `dirt` is ordinary values of the stream `name`.

    Elements from the first to before the second place in `written` will be overwritten, and may hold anything.

    Integers have no infinity: their poisons are 0, the extremes, and numbers that are no length and no page. Bools are
    false under `zero` and true under every other poison.
    """
    poison = plain_poison(poison, seed)
    if dtype == "bool":
        return np.full(size, poison != "zero", dtype=np.uint8)
    if dtype == "int32":
        return np.full(size, _INTEGERS[poison], dtype=np.uint32)
    if dtype == "uint8":
        return _poisoned_bytes(size, poison, seed, name)
    entry = FORMATS[dtype]
    if poison == "dirt":
        begin, end = written or (size, size)
        ends = [philox.normal(seed, f"{name}/dirt", (n - at,), first=at) for at, n in ((0, begin), (end, size))]
        before, behind = (to_bits(part, dtype) for part in ends)
        return np.concatenate((before, np.zeros(end - begin, before.dtype), behind))
    if written is None:
        return np.full(size, entry.poisons[poison], dtype=entry.word)
    buffer = np.empty(size, dtype=entry.word)
    buffer[: written[0]] = buffer[written[1] :] = entry.poisons[poison]
    return buffer


def _poisoned_bytes(size: int, poison: str, seed: int, name: str) -> Bits:
    """Codes: 0, any, the largest finite e4m3, and codes that are NaN or infinities in one format of floats or both."""
    if poison == "dirt":
        return philox.integers(seed, f"{name}/dirt", (size,), 0, 255).astype(np.uint8)
    return np.full(size, _BYTES[poison], dtype=np.uint8)


def poison_heads(buffer: Bits, placement: Placement, heads: int, gap: int, dtype: str, seed: int, name: str) -> None:
    """Writes a poison for each head over a buffer of the first one, in turn through the list.

    Args:
        buffer: of the placement.
        placement: of a tensor whose first axis is the batch or pages.
        heads: the axis of the heads; one of stride 0 is one head.
        gap: unused elements behind each row, which are the head's as well.
        dtype: of the tensor.
        seed: of the case.
        name: of the tensor.
    """
    strides, shape = placement.strides, list(placement.shape)
    if not math.prod(shape) or strides[0] == 0:
        return
    if 1 in strides:
        shape[strides.index(1)] += gap
    shape[heads] = 1 if strides[heads] == 0 else shape[heads]
    every = as_strided(buffer[placement.start :], shape, tuple(stride * buffer.itemsize for stride in strides))
    every = np.moveaxis(every, heads, 1)
    count = math.prod(every.shape[2:])
    for number, place in enumerate(np.ndindex(*every.shape[:2]), start=1):
        own = poisoned(count, dtype, plain_poison("mixed", seed, number), seed, f"{name}/{number}")
        every[place] = own.reshape(every.shape[2:])
