"""Rows that see no key where their LSE is the sink, as an exact logsumexp gives it (docs/bounds.md, sections 6 and 12)."""

import torch
from torch import Tensor

from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.coefficients import LN2, LOG2E, OVERFLOW_FP32
from flashverify.numerics.learned import sum_error

__all__ = ["dsink_error", "lse_error"]

_OWN = 2.0**-50
"""Relative error of the float64 values, several roundings of each."""


def lse_error(problem: BoundInputs) -> tuple[Tensor, Tensor]:
    """B and E64 of the LSE of a row whose only column is the sink, `[Hq]`, in the base of the form; +inf where a sink leaves fp32.

    Section 6 with one column of weight 1: its exponent has the roundings of the sink, and its logarithm is that of about 1.
    """
    assert problem.sink is not None
    c = problem.coefficients()
    assert c.features is not None
    size = problem.sink.abs()
    theta = size * (c.features.bias + c.s_max + c.split) + c.theta_fwd + 2 * c.w
    if c.split:
        theta = theta + c.lg2 * LN2 * c.merges
    inv = 1.0 / torch.minimum(torch.exp(-theta), 0.9 * torch.exp(-c.s_max * size)).clamp(min=2.0**-1000)
    relative = theta + c.row_sum + inv * c.w
    if c.row_sum_rounded:
        relative = relative + (c.u_p + inv * c.eta_p) * (1 + 2 * c.u_p)
    base2 = relative / LN2 + theta.clamp(min=1.0) * c.lg2 + size * LOG2E * (c.base_fwd + 1) * c.u
    unit = LN2 if problem.form.lse_base == "e" else 1.0
    bound = base2 * (1 + 2.0**-17) * unit
    return bound.masked_fill(size * LOG2E >= OVERFLOW_FP32, torch.inf), size * (_OWN / LN2)


def dsink_error(problem: BoundInputs, dlse: Tensor, *, conditional: bool) -> Tensor:
    """What rows that see no key add to the error of a sink's gradient, `[Hq]`: each adds `P_s dLSE` with P_s = 1.

    Args:
        problem: The problem.
        dlse: Of these rows, 0 in all others, `[B, Hq, Sq]` float64.
        conditional: Given the stored LSE; otherwise its error enters P_s.
    """
    assert problem.sink is not None
    c = problem.coefficients()
    assert c.features is not None
    size = problem.sink.abs()
    theta = size * (c.features.bias + (c.base_bwd_conditional if conditional else c.base_bwd)) + c.theta_bwd
    unit = LN2 if problem.form.lse_base == "2" else 1.0
    theta = theta + lse_error(problem)[0] * unit  # a stored LSE is the kernel's own, and may be as far off
    upper = theta.clamp(max=100.0).exp()
    n = dlse.shape[0] * dlse.shape[2]
    each = upper * -torch.expm1(-theta) + upper * 6 * c.u + c.w
    total = dlse.abs().sum((0, 2))
    return total * (each + (upper + _OWN) * (sum_error(n, c.u) + 2 * c.u)) + n * c.w
