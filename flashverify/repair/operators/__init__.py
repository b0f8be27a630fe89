"""Every way in which a line may be wrong that is tried: a file per theme, each of functions from a node to edits."""

from __future__ import annotations

from flashverify.repair.operators.conditions import bounds, branches, comparisons, conjuncts
from flashverify.repair.operators.forgotten import arguments, lines
from flashverify.repair.operators.host import given, layouts, owners, verdicts
from flashverify.repair.operators.insertions import conversions, factors, limits, masks
from flashverify.repair.operators.loads import hidden, unmasked
from flashverify.repair.operators.names import as_elsewhere, exchanged_arguments, others, spreads
from flashverify.repair.operators.numbers import arithmetic, constants, extremes, quotients, remainders, signs, terms
from flashverify.repair.operators.statements import calls, everywhere, left_out, loops, updates

__all__ = ["OPERATORS"]

OPERATORS = (
    comparisons,
    conjuncts,
    bounds,
    branches,
    quotients,
    remainders,
    arithmetic,
    signs,
    terms,
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
    everywhere,
    hidden,
    unmasked,
    owners,
    given,
    verdicts,
    layouts,
    limits,
    factors,
    conversions,
    masks,
    arguments,
    lines,
)
