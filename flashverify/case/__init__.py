"""The case space: what a case is, its one text form, and its tensors in guarded storage.

Importing this package loads neither torch nor hypothesis nor numpy. What needs them is imported by its own name:
`flashverify.case.memory.materialize` (a case as tensors), `flashverify.case.masks.predicate` (which key each row sees),
`flashverify.case.values.tensor_bits` and `flashverify.case.space.strategies`.
"""

from flashverify.case.case import (
    DTYPES,
    EDIT_TENSORS,
    LAYOUTS,
    PLAIN_POISONS,
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
from flashverify.case.masks.mask import Bitmap, Blocks, Causal, Mask, Packed, Selection
from flashverify.case.memory.damage import Damage
from flashverify.case.memory.guard import Guard, guard_outputs
from flashverify.case.problem import Pages, Problem
from flashverify.case.selections import Selections
from flashverify.case.space.matrix import benchmark_cases, standard_matrix
from flashverify.case.supports import Supports
from flashverify.case.text import format_case, parse_case

__all__ = [
    "DTYPES",
    "EDIT_TENSORS",
    "LAYOUTS",
    "PLAIN_POISONS",
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
    "Problem",
    "Selection",
    "Selections",
    "Storage",
    "Supports",
    "Values",
    "benchmark_cases",
    "format_case",
    "guard_outputs",
    "parse_case",
    "standard_matrix",
]
