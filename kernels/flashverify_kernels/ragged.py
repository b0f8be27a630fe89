"""Descriptors of packed rows, whose tiles end at the end of their sequence; see `device.hopper.ragged`."""

from __future__ import annotations

FAR = 1 << 30
"""More rows than descriptors of packed rows have."""
_MOST = 0x7FFF0000  # places of an axis
_AROUND = 2**34  # elements of 2 bytes: `FAR` steps of so many are 2^64 bytes and one more


def ragged(shape: list[int], steps: list[int]) -> tuple[list[int], list[int]]:
    """The shape and the steps of a descriptor of `[1, head, row, channel]`, elements of 2 bytes each."""
    _, heads, _, channels = shape
    _, head, row = steps
    return [_MOST, _MOST, heads, FAR, channels], [_AROUND - row, row, head, row]
