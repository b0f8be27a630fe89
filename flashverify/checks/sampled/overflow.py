"""Whether anything in a large problem may come near the end of a format, from the magnitudes of its tensors alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.formats import FORMATS
from flashverify.numerics.coefficients import LOG2E, OVERFLOW_FP32

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem
    from flashverify.numerics import Form
    from flashverify.truth import Inputs

__all__ = ["stays_in_range"]

_ROOM = 4.0
"""Roundings, softcaps and differences of two terms make nothing larger than so many times the sum of the magnitudes."""


def stays_in_range(problem: Problem, inputs: Inputs, o: torch.Tensor, form: Form) -> bool:
    """Whether no logit, sum over V, dP, delta or dS of any pair, visible or not, can overflow.

    A row that overflows spoils keys that it does not see, in a tile that it shares with them; where no row can, what a key's gradients are
    depends on the rows that see it, and nothing is NaN.

    Args:
        problem: the tensors.
        inputs: their finite values.
        o: the subject's O, `[B, Hq, Sq, Dv]`.
        form: of the subject.
    """
    limit = min(FORMATS[problem.case.dtype].max, OVERFLOW_FP32)
    scale = max(abs(inputs.scale), 1.0)
    products = _largest_product(inputs.q, inputs.k)
    logits = products * scale + _added(problem)
    narrow_o = form.o_accum != "fp32" or form.pv_dtype != "fp32" or form.partial_dtype != "fp32"
    largest = [
        (logits * LOG2E, limit if form.s_dtype == "input" else OVERFLOW_FP32),
        (float(inputs.v.abs().amax()) * problem.case.seq_k, limit if narrow_o else OVERFLOW_FP32),
    ]
    for name, operand in (("q", inputs.q), ("k", inputs.k)):
        prescaled = name in (form.prescale_fwd, form.prescale_bwd)
        largest.append((float(operand.abs().amax()) * scale * LOG2E, limit if prescaled else OVERFLOW_FP32))
    if inputs.do is not None:
        largest += _backward(problem, inputs, o, form, limit)
    return all(math.isfinite(value) and _ROOM * value < most for value, most in largest)


def _backward(problem: Problem, inputs: Inputs, o: torch.Tensor, form: Form, limit: float) -> list[tuple[float, float]]:
    """The largest dS, which is cast to the format of the inputs, and the largest sum of a gradient, each with its limit."""
    assert inputs.do is not None
    do, scale = inputs.do.abs(), max(abs(inputs.scale), 1.0)
    values = _largest_product(do, inputs.v) / (1.0 - inputs.dropout)
    delta = float((do * o.double().abs().nan_to_num(0.0, 0.0, 0.0)).sum(-1).amax())
    dlse = 0.0 if inputs.dlse is None else float(inputs.dlse.abs().amax())
    ds = (values + delta + dlse) * scale
    rows = problem.case.seq_q * (problem.case.heads_q // problem.case.heads_kv)
    operand = max(float(inputs.q.abs().amax()), float(inputs.k.abs().amax()), 1.0)
    sums = ds * operand * max(rows, problem.case.seq_k)
    return [(ds, limit), (sums, OVERFLOW_FP32 if form.grad_accum == "fp32" else limit)]


def _largest_product(rows: torch.Tensor, keys: torch.Tensor) -> float:
    """What no sum of products of a row `[B, Hq, Sq, D]` with a key of its head `[B, Hkv, Sk, D]` exceeds: with the largest magnitude of each channel."""
    largest = keys.abs().amax(2, keepdim=True).repeat_interleave(rows.shape[1] // keys.shape[1], 1)
    return float((rows.abs() @ largest.mT).amax())


def _added(problem: Problem) -> float:
    """The largest magnitude of everything that is added to a logit."""
    case = problem.case
    reach = case.seq_q + case.seq_k
    added = 0.0
    for tensor, times in ((problem.slopes, reach), (problem.bias, 1), (problem.relative_bias, 1), (problem.sink, 1)):
        if tensor is not None and tensor.numel():
            added += float(tensor.double().abs().amax()) * times
    return added
