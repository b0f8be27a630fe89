"""Planted defects: the tests of the tester."""

from flashverify.mutants.bank import BANK
from flashverify.mutants.build import build_mutant
from flashverify.mutants.mutant import Mutant

__all__ = ["BANK", "Mutant", "build_mutant"]
