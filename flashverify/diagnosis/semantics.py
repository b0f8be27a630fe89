"""Every wrong semantics that a diagnosis can name, the more particular ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.bands import BANDS
from flashverify.diagnosis.dropout import DROPOUT
from flashverify.diagnosis.edges import EDGES
from flashverify.diagnosis.gradients import GRADIENTS
from flashverify.diagnosis.heads import HEADS
from flashverify.diagnosis.lengths import LENGTHS
from flashverify.diagnosis.merging import MERGES
from flashverify.diagnosis.padding import PADDINGS
from flashverify.diagnosis.patterns import PATTERNS
from flashverify.diagnosis.rows import ROWS
from flashverify.diagnosis.scales import SCALES
from flashverify.diagnosis.softmax import SOFTMAX
from flashverify.diagnosis.statistics import STATISTICS
from flashverify.diagnosis.sums import SUMS
from flashverify.diagnosis.terms import TERMS
from flashverify.diagnosis.trees import TREES
from flashverify.diagnosis.walks import WALKS

if TYPE_CHECKING:
    from flashverify.diagnosis.base import Semantics

__all__ = ["NAMES", "SEMANTICS"]

SEMANTICS: tuple[Semantics, ...] = (
    *BANDS,
    *TREES,
    *PATTERNS,
    *LENGTHS,
    *TERMS,
    *SCALES,
    *SOFTMAX,
    *MERGES,
    *HEADS,
    *STATISTICS,
    *GRADIENTS,
    *SUMS,
    *DROPOUT,
    *WALKS,
    *EDGES,
    *ROWS,
)
"""Those that are told by their values."""

NAMES: tuple[str, ...] = (*(s.name for s in SEMANTICS), *PADDINGS, "not-written")
"""Names of all of them, also of those that are told by an experiment."""
