"""Defects of quantised K and V."""

from flashverify.mutants.bank.quantised.codes import CODES
from flashverify.mutants.bank.quantised.pages import PAGES
from flashverify.mutants.bank.quantised.queries import QUERIES
from flashverify.mutants.bank.quantised.scales import SCALES
from flashverify.mutants.bank.quantised.weights import WEIGHTS

__all__ = ["QUANTISED"]

QUANTISED = (*SCALES, *CODES, *WEIGHTS, *PAGES, *QUERIES)
