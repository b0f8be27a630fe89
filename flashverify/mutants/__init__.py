"""Planted defects: the tests of the tester."""

from flashverify.mutants.bank import BANK, Mutant
from flashverify.mutants.build import build_mutant

__all__ = ["BANK", "Mutant", "build_mutant"]
