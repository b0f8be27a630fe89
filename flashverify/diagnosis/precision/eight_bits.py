"""Weights that are cast to a format of 8 bits before their product with V, by the factor that multiplies them before."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.numerics.quantised import WEIGHT_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["declared_cast", "weight_casts"]

_FACTORS = (1.0, 2.0, 8.0, 16.0, 64.0, 128.0, 256.0, 448.0)


def declared_cast(scene: Scene, x: Tensor) -> Tensor:
    """Weights as the form of a run has them cast."""
    form = scene.form
    assert form.p_dtype is not None
    return _cast(x, form.p_dtype, form.p_factor)


def weight_casts(scene: Scene) -> Iterator[tuple[str, partial[Tensor]]]:
    """Casts that the form does not declare, in words; none where no operand is in codes."""
    if scene.case.quantised is None:
        return
    form = scene.form
    for name in WEIGHT_FORMATS:
        for factor in _FACTORS:
            if (name, factor) != (form.p_dtype, form.p_factor):
                beside = "without a factor before" if factor == 1.0 else f"times {factor:g} before"
                yield f"P rounded to {name}, {beside}", partial(_cast, name=name, factor=factor)


def _cast(x: Tensor, name: str, factor: float) -> Tensor:
    """Rounded to nearest; a number beyond the format is its largest one."""
    form = WEIGHT_FORMATS[name]
    return (x * factor).clamp(max=form.max).to(getattr(torch, form.library)).double() / factor
