"""Random arrays from raw Philox words: the same on every machine, whatever the version of a library.

Only `numpy.random.Philox.random_raw` is used, whose stream numpy keeps stable; every step after it is exact integer or
power-of-two arithmetic in float64.
"""

from __future__ import annotations

import hashlib
import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Shape = tuple[int, ...]
    Reals = NDArray[np.float64]

__all__ = ["NORMAL_MAX", "integers", "normal", "signs", "words"]

_BOTH_HALVES = np.uint64(0x0000_FFFF_0000_FFFF)
"""The lower 16 bits of each half of a word."""
_HALVES_ADDED = np.uint64(0x1_0000_0001)
"""The factor that leaves the sum of the halves of a word in the upper half, where it is below 2**32."""
_FROM_2_52 = np.uint64(0x4330_0000_0000_0000)
"""The bits of 2.0**52, whose last 52 are an integer to be added."""
_NORMAL_STEP = 7 * 2.0**-18
"""The sum of four 16-bit integers has sigma 37837; this dyadic number is within 1 % of its inverse."""

NORMAL_MAX = 3.5
"""Largest magnitude that `normal` can give, rounded up."""


class _Generator(threading.local):
    """A generator for each thread, which begins anew at every stream: to make one takes many times as long."""

    def __init__(self) -> None:
        self._generator = np.random.Philox(key=0)
        self._beginning: Any = self._generator.state

    def words(self, seed: int, stream: int, counter: int, count: int) -> NDArray[np.uint64]:
        """`count` words of the key (seed, stream), from a counter on."""
        place = self._beginning["state"]
        place["key"][:] = seed, stream
        place["counter"][0] = counter
        self._generator.state = self._beginning
        raw: NDArray[np.uint64] = self._generator.random_raw(count)
        return raw


_OWN = _Generator()


def words(seed: int, name: str, count: int, *, first: int = 0) -> NDArray[np.uint64]:
    """`count` raw 64-bit words of the stream `name` under `seed`.

    Args:
        seed: 0 <= seed < 2**64, one half of the Philox key.
        name: of the stream; its hash is the other half, so that streams are independent.
        count: how many words.
        first: the place of the first of them in the stream.
    """
    if not count:
        return np.empty(0, np.uint64)
    stream = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    counter, rest = divmod(first, 4)  # which makes four words
    return _OWN.words(seed, stream, counter, count + rest)[rest:]


def normal(seed: int, name: str, shape: Shape, *, first: int = 0) -> Reals:
    """Nearly normal values: sigma 1.01, at most 3.5, multiples of 2**-18, exact in fp32.

    Each is the sum of the four 16-bit parts of one word, centred, times a dyadic constant. `first` is the place of the first word in the stream.
    """
    sums = words(seed, name, math.prod(shape), first=first)
    upper = sums >> 16
    upper &= _BOTH_HALVES
    sums &= _BOTH_HALVES
    sums += upper
    sums *= _HALVES_ADDED
    sums >>= 32
    sums |= _FROM_2_52
    values = sums.view(np.float64)
    values -= 2.0**52 + 131070.0
    values *= _NORMAL_STEP
    return values.reshape(shape)


def integers(seed: int, name: str, shape: Shape, low: int, high: int) -> Reals:
    """Integers from `low` to `high`, both included, as float64; the range has at most 2**31 values.

    The high 32 bits of a word are scaled by multiplication: biased by less than 2**-1 of a 2**32-th part.
    """
    upper = words(seed, name, math.prod(shape)) >> np.uint64(32)
    scaled = (upper * np.uint64(high - low + 1)) >> np.uint64(32)
    return (scaled.astype(np.float64) + low).reshape(shape)


def signs(seed: int, name: str, shape: Shape) -> Reals:
    """-1 or +1 with equal probability, as float64."""
    return integers(seed, name, shape, 0, 1) * 2.0 - 1.0
