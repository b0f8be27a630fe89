"""Wrong semantics of what a format of codes has: two codes in a byte, a largest number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.quantised import read_as
from flashverify.diagnosis.hypothesis import Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.code_reading import Reading
    from flashverify.diagnosis.observation import Scene

    Made = Iterator[tuple[str, tuple[Tensor, Tensor]]]

__all__ = ["CODE_FORMATS"]

_LARGEST = {"e4m3": (448.0, 240.0), "e5m2": (57344.0,), "int8": (127.0, 128.0), "int4": (7.0, 8.0, 15.0)}
"""Largest numbers of the formats."""
_NO_CODE, _LEAST_BLOCK = 8.0, 16
"""A half of 4 bits where there is no code, and the fewest channels of a tile of a matrix unit."""


def _nibbles(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    if x.name != "int4":
        return
    low, high = (x.stored & 15).double(), (x.stored >> 4).double()
    yield "the high half first", x.value(numbers=torch.stack([high, low], -1).flatten(-2))
    yield "low halves first, then high ones", x.value(numbers=torch.cat([low, high], -1))
    if (beyond := _block(x.numbers.shape[-1]) // 2 - low.shape[-1]) > 0:
        filled = torch.nn.functional.pad(low, (0, beyond), value=_NO_CODE)
        halves = torch.cat([filled, high], -1)[..., : x.numbers.shape[-1]]
        yield "low halves first, then high ones, each filled up to half a block of channels", x.value(numbers=halves)
    yield "the low half for both", x.value(numbers=torch.stack([low, low], -1).flatten(-2))
    signed = torch.where(x.numbers > 7, x.numbers - 16, x.numbers)
    yield "in two's complement", x.value(numbers=signed, zero=0.0)


def _largest(x: Reading, scene: Scene) -> Made:  # noqa: ARG001
    for largest in _LARGEST[x.name]:
        yield f"divided by {largest:g}", x.value(scale=x.scale / largest)
        yield f"multiplied by {largest:g}", x.value(scale=x.scale * largest)


def _block(channels: int) -> int:
    """The channels of a tile, a power of two."""
    return max(1 << (channels - 1).bit_length(), _LEAST_BLOCK)


CODE_FORMATS = (
    Semantics(
        name="codes-scale-as-largest",
        sentence="the scale of the codes is taken for their largest value, or the largest value for the scale",
        build=read_as(_largest),
    ),
    Semantics(name="codes-halves", sentence="the two codes of a byte are told apart wrongly", build=read_as(_nibbles)),
)
