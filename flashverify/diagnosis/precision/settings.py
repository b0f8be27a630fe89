"""Numbers of a problem that a kernel may keep with too few bits: the scale, a softcap, the share of dropout."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.precision.rounding import NARROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.precision.rounding import Rounding
    from flashverify.truth import Inputs

__all__ = ["rounded_settings"]

_LOG2E = 1.0 / math.log(2.0)
_SETTINGS: tuple[tuple[str, str, str, float], ...] = (
    ("scale", "the scale", "", 1.0),
    ("scale", "the scale times log2(e)", "", _LOG2E),
    ("softcap", "the softcap", "softcap", 1.0),
    ("dropout", "p of dropout", "dropout", 1.0),
)
"""Field of `Inputs`, words, the field that is needed, and what multiplies the number before it is rounded."""


def rounded_settings() -> Iterator[tuple[str, Callable[[Inputs], Inputs], str]]:
    """In words, the problem with one number rounded or cut off, and the field of `Inputs` that is needed."""
    for name, words, needs, unit in _SETTINGS:
        for how, rounding in NARROW.items():
            yield f"{words}, {how}", partial(_with, name=name, rounding=rounding, unit=unit), needs


def _with(inputs: Inputs, name: str, rounding: Rounding, unit: float) -> Inputs:
    given = getattr(inputs, name)
    if not given:
        return inputs
    number = float(rounding(torch.tensor(given * unit, dtype=torch.float64))) / unit
    changed: dict[str, Any] = {name: number}
    return replace(inputs, **changed)
