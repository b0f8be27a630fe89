"""The case space: what a case is, its one text form, and its tensors in guarded storage.

Importing this package loads neither torch nor hypothesis nor numpy. What needs them is imported by its own name:
`flashverify.case.materialize` (a case as tensors), `flashverify.case.values` and `flashverify.case.strategies`.
"""

from flashverify.case.case import (
    DTYPES,
    EDIT_TENSORS,
    LAYOUTS,
    POISONS,
    PRECISIONS,
    REGIMES,
    Case,
    Edit,
    Grad,
    Logits,
    Storage,
    Values,
)
from flashverify.case.damage import Damage
from flashverify.case.guard import Guard, guard_outputs
from flashverify.case.mask import Bitmap, Blocks, Causal, Mask, Packed, Visible, visible
from flashverify.case.matrix import benchmark_cases, standard_matrix
from flashverify.case.positions import Positions, positions
from flashverify.case.problem import Pages, Problem
from flashverify.case.supports import Supports
from flashverify.case.text import format_case, parse_case

__all__ = [
    "DTYPES",
    "EDIT_TENSORS",
    "LAYOUTS",
    "POISONS",
    "PRECISIONS",
    "REGIMES",
    "Bitmap",
    "Blocks",
    "Case",
    "Causal",
    "Damage",
    "Edit",
    "Grad",
    "Guard",
    "Logits",
    "Mask",
    "Packed",
    "Pages",
    "Positions",
    "Problem",
    "Storage",
    "Supports",
    "Values",
    "Visible",
    "benchmark_cases",
    "format_case",
    "guard_outputs",
    "parse_case",
    "positions",
    "standard_matrix",
    "visible",
]
