"""Random arrays from raw Philox words: the same on every machine, whatever the version of a library.

Only `numpy.random.Philox.random_raw` is used, whose stream numpy keeps stable; every step after it is exact integer or
power-of-two arithmetic in float64.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Shape = tuple[int, ...]
    Reals = NDArray[np.float64]

__all__ = ["NORMAL_MAX", "integers", "normal", "signs", "words"]

_NORMAL_STEP = 7 * 2.0**-18
"""The sum of four 16-bit integers has sigma 37837; this dyadic number is within 1 % of its inverse."""

NORMAL_MAX = 3.5
"""Largest magnitude that `normal` can give, rounded up."""


def words(seed: int, name: str, count: int) -> NDArray[np.uint64]:
    """`count` raw 64-bit words of the stream `name` under `seed`.

    Args:
        seed: 0 <= seed < 2**64, one half of the Philox key.
        name: of the stream; its hash is the other half, so that streams are independent.
        count: how many words.
    """
    stream = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    raw: NDArray[np.uint64] = np.random.Philox(key=(stream << 64) | seed).random_raw(count)
    return raw


def normal(seed: int, name: str, shape: Shape) -> Reals:
    """Nearly normal values: sigma 1.01, at most 3.5, multiples of 2**-18, exact in fp32.

    Each is the sum of the four 16-bit parts of one word, centred, times a dyadic constant.
    """
    parts = words(seed, name, math.prod(shape)).view(np.uint16)
    total = np.add(parts[0::4], parts[1::4], dtype=np.uint32)
    total += parts[2::4]
    total += parts[3::4]
    values = total.astype(np.float64)
    values -= 131070.0
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
