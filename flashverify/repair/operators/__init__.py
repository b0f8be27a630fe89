"""Every way in which a line may be wrong that is tried: a file per theme, each of functions from a node to edits."""

from __future__ import annotations

from flashverify.repair.operators.conditions import branches, comparisons, conjuncts
from flashverify.repair.operators.insertions import conversions, factors, limits, masks
from flashverify.repair.operators.names import as_elsewhere, exchanged_arguments, others, spreads
from flashverify.repair.operators.numbers import arithmetic, constants, extremes, quotients, signs
from flashverify.repair.operators.statements import calls, left_out, loops, updates

__all__ = ["OPERATORS"]

OPERATORS = (
    comparisons,
    conjuncts,
    branches,
    quotients,
    arithmetic,
    signs,
    constants,
    extremes,
    others,
    as_elsewhere,
    exchanged_arguments,
    spreads,
    left_out,
    updates,
    loops,
    calls,
    limits,
    factors,
    conversions,
    masks,
)
