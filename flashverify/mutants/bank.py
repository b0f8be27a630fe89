"""The bank: each mutant is one change in one place of the bundled kernels, modelled on a defect that a real kernel had."""

from __future__ import annotations

from flashverify.mutants.bank_decode import DECODE
from flashverify.mutants.bank_dropout import DROPOUT
from flashverify.mutants.bank_logits import LOGITS
from flashverify.mutants.bank_masks import MASKS
from flashverify.mutants.bank_sequences import SEQUENCES
from flashverify.mutants.bank_softmax import SOFTMAX
from flashverify.mutants.mutant import Mutant

__all__ = ["BANK", "Mutant"]

BANK: tuple[Mutant, ...] = (*SOFTMAX, *MASKS, *SEQUENCES, *LOGITS, *DROPOUT, *DECODE)
"""Defects that an interpreted kernel shows."""
