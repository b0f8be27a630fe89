"""Operands that are multiplied by way of int8: in steps of the largest number of a tile, of a row or of a head."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.precision.model import Model
from flashverify.diagnosis.precision.model_tables import EVERYWHERE
from flashverify.diagnosis.precision.steps import tiles
from flashverify.outputs import FORWARD, OF_DS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.precision.steps import Steps

__all__ = ["eight_bit_models"]

_LARGEST = 127.0
_OPERANDS = (
    ("K", ("k",), FORWARD),
    ("Q", ("q",), FORWARD),
    ("Q and K", ("q", "k"), FORWARD),
    ("V", ("v",), ("o",)),
    ("Q and K", ("q", "k"), EVERYWHERE),
    ("V", ("v",), ("o", *OF_DS)),
)
"""Words, operands and what they reach: the forward alone, or the backward too."""


def eight_bit_models() -> Iterator[Model]:
    """Each operand by tiles, by rows or keys, and by heads."""
    for words, names, outputs in _OPERANDS:
        for of, tiled in (("tile", True), ("row or key", False), ("head", False)):
            yield Model(
                words=f"{words} rounded to int8 steps of the largest of each {of}",
                change=partial(_stepped, names=names, of=of),
                outputs=outputs,
                tiled=tiled,
                several=len(names) > 1,
            )


def _stepped(steps: Steps, names: tuple[str, ...], of: str) -> Steps:
    size = {"tile": steps.tile, "row or key": 1, "head": None}[of]
    return replace(steps, **dict.fromkeys(names, partial(_by_largest, size=size)))  # type: ignore[arg-type]


def _by_largest(x: Tensor, size: int | None) -> Tensor:
    """Rounded to 127 steps up to the largest magnitude of every `size` rows or keys; of all where it is None."""
    if not x.numel():
        return x
    return torch.cat([_rounded(x[:, :, at]) for at in tiles(x.shape[2], size)], 2)


def _rounded(x: Tensor) -> Tensor:
    step = x.abs().amax((2, 3), keepdim=True) / _LARGEST
    step = torch.where(step == 0, 1.0, step)
    return torch.floor(x / step + 0.5) * step
