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
    """Whether no logit, dP, delta or dS of any pair, visible or not, can overflow.

    A row that overflows spoils keys that it does not see, in a tile that it shares with them; where no row can, what a key's gradients are
    depends on the rows that see it.

    Args:
        problem: the tensors.
        inputs: their finite values.
        o: the subject's O, `[B, Hq, Sq, Dv]`.
        form: of the subject.
    """
    assert inputs.do is not None
    scale, largest_k, largest_v = abs(inputs.scale), _largest(inputs.k), _largest(inputs.v)
    products = float((inputs.q.abs() @ largest_k).amax())
    logits = max(products, products * max(scale, 1.0)) + _added(problem)
    keep = 1.0 / (1.0 - inputs.dropout)
    do = inputs.do.abs()
    values = float((do @ largest_v).amax()) * keep
    delta = float((do * o.double().abs().nan_to_num(0.0, 0.0, 0.0)).sum(-1).amax())
    dlse = 0.0 if inputs.dlse is None else float(inputs.dlse.abs().amax())
    ds = (values + delta + dlse) * max(scale, 1.0)
    narrow = FORMATS[problem.case.dtype]
    limit = min(narrow.max, OVERFLOW_FP32)
    rows = problem.case.seq_q * (problem.case.heads_q // problem.case.heads_kv)
    sums = ds * max(float(inputs.q.abs().amax()), float(inputs.k.abs().amax()), 1.0) * max(rows, problem.case.seq_k)
    largest = [
        (logits * LOG2E, limit if form.s_dtype == "input" else OVERFLOW_FP32),
        (ds, limit),  # dS is cast to the format of the inputs
        (sums, OVERFLOW_FP32 if form.grad_accum == "fp32" else limit),
        (float(inputs.k.abs().amax()) * max(scale, 1.0) * LOG2E, limit if "k" in (form.prescale_fwd, form.prescale_bwd) else OVERFLOW_FP32),
        (float(inputs.q.abs().amax()) * max(scale, 1.0) * LOG2E, limit if "q" in (form.prescale_fwd, form.prescale_bwd) else OVERFLOW_FP32),
    ]  # fmt: skip
    return all(math.isfinite(value) and _ROOM * value < most for value, most in largest)


def _largest(x: torch.Tensor) -> torch.Tensor:
    """The largest magnitude of each channel of `[B, H, S, D]`."""
    return x.abs().amax((0, 1, 2))


def _added(problem: Problem) -> float:
    """The largest magnitude of everything that is added to a logit."""
    case = problem.case
    reach = case.seq_q + case.seq_k
    added = 0.0
    for tensor, times in ((problem.slopes, reach), (problem.bias, 1), (problem.relative_bias, 1), (problem.sink, 1)):
        if tensor is not None and tensor.numel():
            added += float(tensor.double().abs().amax()) * times
    return added
