"""How many elements of an array are true: the question that loads and stores put most, of arrays so small that its call is what costs."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

__all__ = ["count_nonzero"]


def _bare() -> Any:
    """NumPy's own function without the choice of an axis and of another library around it; the public one where it is not found."""
    try:
        return importlib.import_module("numpy._core.multiarray").count_nonzero
    except (ImportError, AttributeError):
        return np.count_nonzero


count_nonzero: Any = _bare()
"""`np.count_nonzero` of a whole array."""
