"""The steps that models round, their words and what they reach."""

from __future__ import annotations

from flashverify.outputs import BACKWARD, FORWARD, OF_DS

__all__ = ["ADDENDS", "BETWEEN", "EVERYWHERE", "KEPT", "PIECES", "ROUNDED", "STEPS"]

_Row = tuple[str, str, tuple[str, ...], str, bool]
"""Step, words, outputs, the field of `Inputs` that is needed, and whether tiles matter."""

EVERYWHERE = (*FORWARD, *(name for name in BACKWARD if name not in ("delta", "dsink")))
"""What the logits reach."""
_DQ_DK = tuple(name for name in ("dq", "dk") if name in OF_DS)
_OF_DELTA = ("delta", *OF_DS, "dsink")

STEPS: tuple[_Row, ...] = (
    ("p", "P", ("o", "dv"), "", True),
    ("summed", "the row sum of P {}", FORWARD, "", True),
    ("ds", "dS", _DQ_DK, "", False),
    ("p_of_ds", "P {}, where dS is made from it", OF_DS, "", False),
    ("dp", "dP", OF_DS, "", False),
    ("delta", "delta", _OF_DELTA, "", False),
    ("logit", "the logits", EVERYWHERE, "", False),
    ("product", "the products of Q and K before their scale", EVERYWHERE, "", False),
    ("q", "Q", EVERYWHERE, "", False),
    ("k", "K", EVERYWHERE, "", False),
    ("v", "V", ("o", *OF_DS), "", False),
    ("do", "dO", BACKWARD, "", False),
    ("scaled_q", "Q times the scale", EVERYWHERE, "", False),
    ("read_lse", "the LSE that the backward reads", BACKWARD, "", False),
    ("tanh", "the tanh of the softcap", EVERYWHERE, "softcap", False),
)
"""Steps that are rounded or cut off."""
KEPT: tuple[_Row, ...] = (
    ("accumulator", "the accumulator, {} after each tile", ("o", "dq", "dk", "dv"), "", True),
    ("row_sum", "the row sum, {} after each tile", FORWARD, "", True),
    ("alpha_of_o", "the factor that rescales the accumulator of O, {}", ("o",), "", True),
    ("lse", "the LSE, {}", ("lse",), "", False),
    ("o", "O, {}", ("o",), "", False),
    ("gradient", "the gradient, {}", ("dq", "dk", "dv", "dbias"), "", False),
)
"""What is kept between steps or returned."""
ROUNDED: tuple[_Row, ...] = (
    ("alpha", "the factor that rescales the row sum, {}", FORWARD, "", True),
    ("undivided", "O before its division, {}", ("o",), "", True),
    ("divisor", "the row sum that O is divided by, {}", ("o",), "", True),
    ("reciprocal", "the reciprocal of the row sum, {}", ("o",), "", True),
    ("p_normalised", "P divided by the row sum, {}", ("o",), "", False),
    ("centred_k", "K minus its mean over the keys, {}", EVERYWHERE, "", False),
    ("terms", "the bias, {}", EVERYWHERE, "biases", False),
    ("slopes", "the slopes of ALiBi, {}", EVERYWHERE, "slopes", False),
    ("sink", "the sink, {}", (*FORWARD, "dsink"), "sink", False),
    ("delta_product", "the products that delta sums, {}", _OF_DELTA, "", False),
    ("shift", "delta minus dLSE, {}", _OF_DELTA, "dlse", False),
    ("dlse", "dLSE, {}", _OF_DELTA, "dlse", False),
    ("member", "the gradient of each query head of a group, {} before their sum", ("dk", "dv"), "", False),
    ("unscaled", "the gradient before its scale, {}", _DQ_DK, "", False),
    ("share", "what each tile adds to the gradient, {} before the sum", ("dq", "dk", "dv"), "", True),
    ("ds_summed", "dS, {} before it is summed", ("dbias", "drelative_bias"), "", False),
    ("bias_sum", "the sum of dS, {} after each term", ("dbias",), "bias_shape", False),
    ("sink_weight", "the weight of the sink, {}", ("dsink",), "sink", False),
    ("sink_term", "each row's share of dsink, {} before their sum", ("dsink",), "sink", False),
)
"""Steps that are rounded, never cut off."""
ADDENDS = frozenset({"share"})
"""Steps that are the sum itself where one tile is all."""
BETWEEN: tuple[_Row, ...] = (
    ("exponent", "logits minus what is subtracted from them, {}", EVERYWHERE, "", True),
    ("scaled_product", "the scaled products of Q and K, {}", EVERYWHERE, "", False),
    ("capped", "the capped logits, {}", EVERYWHERE, "softcap", False),
    ("slope", "the derivative of the softcap, {}", _DQ_DK, "softcap", False),
    ("scaled_k", "K times the scale, {}", EVERYWHERE, "", False),
    ("undropped", "P, {} before 1 / (1 - p) of dropout", ("o", "dv"), "dropout", True),
    ("scaled_v", "V times 1 / (1 - p) of dropout, {}", ("o", *OF_DS), "dropout", True),
    ("scaled_do", "dO times 1 / (1 - p) of dropout, {}", OF_DS, "dropout", False),
    ("kept_dp", "dP times 1 / (1 - p) of dropout, {}", OF_DS, "dropout", False),
    ("centred_dp", "dP minus delta, {}", OF_DS, "", False),
    ("raw_ds", "dS, {} before the derivative of the softcap", _DQ_DK, "softcap", False),
    ("read_o", "O that delta reads, {}", _OF_DELTA, "", False),
    ("scaled_ds", "dS times the scale, {}", _DQ_DK, "", False),
)
"""What stands between two steps, rounded; it is told last, since most kernels never name it."""
PIECES: tuple[tuple[str, str, bool], ...] = (
    ("part_o", "O of each piece{}, {} before the pieces are merged", False),
    ("part_lse", "the LSE of each piece{}, {} before the pieces are merged", False),
    ("part_lse", "the LSE in base 2 of each piece{}, {} before the pieces are merged", True),
    ("part_exponent", "the LSE of each piece{} minus the largest, {}", False),
    ("part_exponent", "the LSE of each piece{} minus the largest, in base 2, {}", True),
    ("part_weight", "the weight of each piece{}, {} before the pieces are merged", False),
)
"""Step, words of the size and the rounding, and whether it is rounded in base 2."""
