"""Attention over K and V in codes of 8 or 4 bits with scales: decoding and prefill, forward only."""

from flashverify_kernels.quantised.attention import quantised_attention, quantised_decode
from flashverify_kernels.quantised.cache import Quantised, QuantisedQueries

__all__ = ["Quantised", "QuantisedQueries", "quantised_attention", "quantised_decode"]
