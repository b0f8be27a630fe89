"""The truth of a case: its finite values, what the oracles say of them, and how far a correct subject may be from that.

`inputs_of` takes a problem apart into what the oracles are given and what non-finite inputs may have reached; `Truth` has values and bounds.
"""

from flashverify.truth.exact import exact_values, float64_values
from flashverify.truth.from_problem import inputs_of
from flashverify.truth.inputs import Inputs
from flashverify.truth.pair_sources import distances, kept_pairs, random_words, table_biases
from flashverify.truth.parts import of_keys, of_rows
from flashverify.truth.taint import Clean, clean
from flashverify.truth.values import Truth

__all__ = [
    "Clean",
    "Inputs",
    "Truth",
    "clean",
    "distances",
    "exact_values",
    "float64_values",
    "inputs_of",
    "kept_pairs",
    "of_keys",
    "of_rows",
    "random_words",
    "table_biases",
]
