"""The curated bank: each mutant is one change in one place of the bundled kernels, modelled on a defect that a real kernel had."""

from __future__ import annotations

from flashverify.mutants.bank.combined import COMBINED
from flashverify.mutants.bank.controls import CONTROLS as _CONTROLS
from flashverify.mutants.bank.decode import DECODE
from flashverify.mutants.bank.dropout import DROPOUT
from flashverify.mutants.bank.edges import EDGES
from flashverify.mutants.bank.gpu import GPU, GPU_CONTROLS
from flashverify.mutants.bank.heads import HEADS
from flashverify.mutants.bank.latent import LATENT
from flashverify.mutants.bank.logits import LOGITS
from flashverify.mutants.bank.masks import MASKS
from flashverify.mutants.bank.memory import MEMORY_BANK
from flashverify.mutants.bank.precision import PRECISION
from flashverify.mutants.bank.quantised import QUANTISED
from flashverify.mutants.bank.relative_bias import RELATIVE_BIAS
from flashverify.mutants.bank.ring import RING
from flashverify.mutants.bank.selection import SELECTION
from flashverify.mutants.bank.sequences import SEQUENCES
from flashverify.mutants.bank.softmax import SOFTMAX
from flashverify.mutants.bank.storage import STORAGE
from flashverify.mutants.mutant import Mutant

__all__ = ["BANK", "BEYOND_CASES", "CONTROLS", "CURATED", "QUANTISED", "Mutant"]

BANK: tuple[Mutant, ...] = (
    *SOFTMAX,
    *MASKS,
    *SEQUENCES,
    *LOGITS,
    *RELATIVE_BIAS,
    *DROPOUT,
    *DECODE,
    *RING,
    *EDGES,
    *HEADS,
    *STORAGE,
    *PRECISION,
    *LATENT,
    *SELECTION,
    *COMBINED,
)
"""Defects that an interpreted kernel shows in its outputs."""
BEYOND_CASES = ("offset_in_32_bits",)
"""Shown by the check `addresses` alone, in strides that no case has (`tests/checks/test_addresses.py`)."""
CURATED: tuple[Mutant, ...] = (
    *BANK,
    *(mutant for mutant in MEMORY_BANK if mutant.name not in BEYOND_CASES),
    *GPU,
    *QUANTISED,
)
"""Every defect that is modelled on a real one and that a case can show."""
CONTROLS: tuple[Mutant, ...] = (*_CONTROLS, *GPU_CONTROLS)
"""Changes that must stay quiet."""
