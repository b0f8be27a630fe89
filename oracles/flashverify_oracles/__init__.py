"""Independent computations of the right answer of attention: float64 for every case, mpmath for small ones, and exact rounding."""

from flashverify_oracles._results import Backward, Forward
from flashverify_oracles.alibi import alibi
from flashverify_oracles.dropout import dropout_keep, dropout_words
from flashverify_oracles.exact import (
    ExactAttention,
    PrecisionExhausted,
    abs_difference,
    exact_attention,
    max_abs_difference,
)
from flashverify_oracles.float64 import backward, forward
from flashverify_oracles.relative import relative_bias, relative_buckets, t5_buckets
from flashverify_oracles.rounding import round_array, round_scalar, round_tensor

__all__ = [
    "Backward",
    "ExactAttention",
    "Forward",
    "PrecisionExhausted",
    "abs_difference",
    "alibi",
    "backward",
    "dropout_keep",
    "dropout_words",
    "exact_attention",
    "forward",
    "max_abs_difference",
    "relative_bias",
    "relative_buckets",
    "round_array",
    "round_scalar",
    "round_tensor",
    "t5_buckets",
]
