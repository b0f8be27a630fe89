"""The groups of programs of a launch that go the same way, and which launches are likely to part alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

__all__ = ["NUMBERS", "by_value", "chunks", "kind_of"]

NUMBERS = frozenset({int, float, bool, str, type(None)})
"""Classes of the arguments of launches that are constants."""


def kind_of(x: Any) -> Any:
    """What tells an argument from others whose launches may part ways elsewhere: everything but the data."""
    return (x.__class__, x) if x.__class__ in NUMBERS else "*" if isinstance(x, torch.Tensor) else repr(x)


def chunks(group: Any, size: int) -> list[Any]:
    """Parts of at most `size` programs, last first."""
    size = max(size, 1)
    return [group[start : start + size] for start in range(0, len(group), size)][::-1]


def by_value(group: Any, values: Any) -> list[Any]:
    """The programs of each value, that of the first program last; nothing where there is not one value per program."""
    if len(values) != len(group):
        return []
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    return [group[inverse == value] for value in np.argsort(-first)]
