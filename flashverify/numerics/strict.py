"""The strict bounds of O and dV: what the rounded weights of a declared order of tiles must be (docs/bounds.md, section 14)."""

import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

from flashverify.formats import FORMATS, Format
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import MASKED, Chunk
from flashverify.numerics.coefficients import Coefficients
from flashverify.numerics.form import Form
from flashverify.numerics.logits import sink_error
from flashverify.numerics.result import OutputBound, StrictBound

__all__ = ["join_strict", "predict_dv", "predict_o", "predicts_dv", "predicts_o"]

# What float64 adds to an error that was derived at 2^-24: relative to it, and absolute in an exponent.
_OWN = 2.0**-20
_OWN_FLAT = 2.0**-46
# A running maximum that is known no better than this predicts nothing; the coefficient of its weights stays finite.
_WIDEST = 1.0
_LARGE = 30.0
# The sign and exponent of a float64.
_EXPONENT = -(1 << 52)


def _predicts(form: Form, problem: BoundInputs) -> bool:
    dropped = problem.features is not None and problem.features.keep
    return form.key_order == "ascending" and FORMATS[problem.dtype].narrow and form.gap_c > 0 and not dropped


def predicts_o(problem: BoundInputs) -> bool:
    """Whether section 14 covers O of the problem's form.

    It does not cover dropout (weights may be scaled before their cast), splits, a threshold of the rescale, a maximum that is
    rounded apart, another normalisation than at the end, a row sum of rounded weights and 16-bit partial results, products and accumulators.
    """
    form = problem.form
    plain = form.n_splits == 1 and form.rescale_threshold == 0 and form.partial_dtype == "fp32"
    plain = plain and (form.max_source, form.normalise, form.row_sum) == ("exponent", "end", "unrounded")
    plain = plain and (form.pv_dtype, form.o_accum) == ("fp32", "fp32")
    return plain and form.block_n is not None and _predicts(form, problem)


def predicts_dv(problem: BoundInputs) -> bool:
    """Whether section 14 covers dV, given the subject's own LSE: not with P of the forward, dropout, narrow accumulators or heads that are rounded before their sum."""
    form = problem.form
    narrow = form.grad_accum != "fp32" and form.grad_accum_of != "dq"
    return (
        form.p_from != "forward"
        and not narrow
        and (form.gqa_partial == "fp32" or problem.shape.group == 1)
        and _predicts(form, problem)
    )


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded to the input dtype. torch goes by way of fp32, where the kernel's weights lie too: an end of their interval stays one."""
    return x.to(dtype).double()


def _lowest(x: Tensor, dtype: torch.dtype, w: float) -> Tensor:
    """The smallest rounded weight: one that fp32 may flush is 0."""
    return threshold(_cast(x, dtype), w, 0.0)


def _tiles(x: Tensor, block: int) -> Tensor:
    """`[G, M, N]` as `[G, M, tiles, block]`, filled up with invisible pairs."""
    G, M, N = x.shape
    if block >= N:
        return x.unsqueeze(-2)
    rest = -N % block
    return (pad(x, (0, rest), value=MASKED) if rest else x).view(G, M, -1, block)


def predict_o(
    problem: BoundInputs,
    c: Coefficients,
    chunk: Chunk,
    *,
    L: Tensor,
    theta: Tensor,
    log_l: Tensor,
    inv: Tensor,
    nv: Tensor,
) -> tuple[Tensor, Tensor]:
    """O from the weights as they must be rounded, and its error before the rounding of the output.

    Args:
        problem: The problem, of a form that `predicts_o`.
        c: The coefficients.
        chunk: The chunk.
        L: The oracle's LSE, `[G, M, 1]`, 0 in empty rows.
        theta: Error of the exponents `[G, M, N]`, its constants included.
        log_l: `[G, M, 1]` error of the logarithm of the row sum about L, float64's own included.
        inv: `[G, M, 1]` the largest that 1 / l may be.
        nv: Sum of |V| over visible keys, `[G, M, Dv]`.

    Returns:
        Both `[G, M, Dv]`; the error is infinite where nothing is predicted.
    """
    form = problem.form
    x, block = FORMATS[problem.dtype], form.block_n
    assert block is not None
    up = _tiles(torch.add(chunk.S, theta, alpha=1 + _OWN), block)
    down = _tiles(torch.sub(chunk.S, theta, alpha=1 + _OWN), block)
    # The running maximum lies between those of the lowest and of the highest logits; the constants are no part of a logit's error.
    high = torch.cummax(up.amax(-1), -1).values.sub_(c.theta_fwd - _OWN_FLAT).unsqueeze(-1)
    low = torch.cummax(down.amax(-1), -1).values.add_(c.theta_fwd - _OWN_FLAT).unsqueeze(-1)
    middle, width = (high + low).mul_(0.5), (high - low).mul_(0.5)
    top = high[..., -1:, :]
    if chunk.sink is not None:
        top = torch.maximum(top, (chunk.sink + sink_error(c, chunk, chunk.sink)).unsqueeze(-1))
    share = torch.exp((middle - L.unsqueeze(-1)).clamp_(max=_LARGE))
    moved = width.add(top - low, alpha=c.gap * (1 + _OWN)).add_(c.theta_fwd).add_(log_l.unsqueeze(-1))
    moved = moved.clamp_(max=_LARGE).expm1_()
    coefficient = moved.mul(1 + c.dot_keys).add_(c.dot_keys * (1 + _OWN))

    most = _cast(torch.exp_(up.sub(low).clamp_(max=c.theta_bwd)), x.dtype).mul_(share)
    least = _lowest(torch.exp_(down.sub(high)), x.dtype, c.w).mul_(share)
    error = torch.addcmul(torch.sub(most, least).mul_(0.5), most, coefficient)
    error, weights = (y.flatten(-2)[..., : chunk.S.shape[-1]] for y in (error, most.add_(least).mul_(0.5)))

    value = weights @ chunk.v
    # A subnormal weight enters a matrix unit with the exponent of the smallest normal number.
    aligned = 2 * c.dot_keys * x.min_normal if form.architecture != "ieee" else 0.0
    core = torch.addcmul(error @ chunk.av, inv, nv * (c.w + aligned) + (4 * c.w) * chunk.n)
    core = core + (value.abs() + core) * c.div
    lost = ((width > _WIDEST) & (middle > MASKED / 2)).any(-2) | (log_l > _WIDEST)
    return value, core.masked_fill_(lost, torch.inf)


def predict_dv(
    problem: BoundInputs, c: Coefficients, chunk: Chunk, *, P: Tensor, Pb: Tensor, ado: Tensor, do: Tensor
) -> tuple[Tensor, Tensor]:
    """A chunk's share of dV from the weights as they must be rounded given the LSE, and its error before finalisation.

    Args:
        problem: The problem, of a form that `predicts_dv`.
        c: The coefficients.
        chunk: The chunk.
        P: Weights given the subject's LSE, `[G, M, N]`.
        Pb: Their largest values, `P e^theta + w`.
        ado: `|dO|` as a matrix unit aligns it, `[G, M, Dv]`.
        do: dO.

    Returns:
        Both `[G, N, Dv]`.
    """
    x = FORMATS[problem.dtype]
    largest = torch.mul(Pb, 1 + _OWN + _OWN_FLAT).sub_(P, alpha=_OWN)
    least = _lowest(torch.div(P * P, largest.clamp(min=c.w)), x.dtype, c.w)
    most = _cast(largest, x.dtype)
    weights, error = (most + least).mul_(0.5), (most - least).mul_(0.5)
    error.add_(most, alpha=c.dot_queries * (1 + _OWN))
    if problem.form.architecture != "ieee":
        error = chunk.add_visible(error, c.dot_queries * x.min_normal)
    core = error.mT @ ado
    if (small := problem.flushable(do)) is not None:
        core.add_(most.mT @ small)
    return weights.mT @ do, core


def _half_spacing(size: Tensor, out: Format) -> Tensor:
    """The rounding error of a normal number of at most this magnitude, float64: u times the power of two below it."""
    return (size.clamp(min=out.min_normal).view(torch.int64) & _EXPONENT).view(torch.float64).mul_(out.u)


def join_strict(
    ordinary: OutputBound, expected: Tensor, value: Tensor, error: Tensor, out: Format, eta: float
) -> StrictBound | None:
    """The strict value and bound where they are the sharper ones, the ordinary ones elsewhere.

    Args:
        ordinary: The bound of section 7 or 12.
        expected: The oracle's values.
        value: The predicted ones.
        error: Their error before the rounding of the output.
        out: Format of the output.
        eta: Its subnormal error.

    Returns:
        The bound, or None where it is nowhere sharper.
    """
    total = ordinary.total
    bound = _half_spacing(value.abs() + error, out).add_(error).add_(eta)
    # An element that is exempt or near the end of its range stays as it is.
    sharper = (bound < total) & (expected.abs() + total < out.max)
    if not bool(sharper.any()):
        return None
    return StrictBound(
        value=torch.where(sharper, value, expected),
        bound=OutputBound(
            bound=torch.where(sharper, bound, ordinary.bound),
            self_error=ordinary.self_error.masked_fill(sharper, 0.0),
            may_overflow=ordinary.may_overflow,
            may_flip=ordinary.may_flip,
            must_overflow=ordinary.must_overflow,
            uninformative=ordinary.uninformative,
        ),
        sharper=sharper,
    )
