"""The strict bounds of O and dV: what the rounded weights of a declared order of tiles must be (docs/bounds.md, section 14)."""

import math

import torch
from torch import Tensor
from torch.nn.functional import threshold

from flashverify.formats import FORMATS, Format
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import MASKED, Chunk
from flashverify.numerics.coefficients import Coefficients
from flashverify.numerics.exponential import exp_
from flashverify.numerics.form import Form
from flashverify.numerics.quantised import FP8_WEIGHTS, WEIGHT_FORMATS
from flashverify.numerics.result import OutputBound, StrictBound
from flashverify.numerics.running_maximum import OWN, OWN_FLAT, RunningMaximum, follows_order, tiles_of
from flashverify.numerics.scaled import carried_scales, error_of_values, smallest_units
from flashverify.numerics.tile_sums import growth, running_sum

__all__ = ["join_strict", "predict_dv", "predict_o", "predicts_dv", "predicts_o"]

# A running maximum that is known no better than this predicts nothing; the coefficient of its weights stays finite.
_WIDEST = 1.0
_LARGE = 30.0
# Share of a row's weight before its last maximum from which on the error of that maximum is no common factor.
_FEW = 0.25
# The sign and exponent of a float64.
_EXPONENT = -(1 << 52)


def _predicts(form: Form, problem: BoundInputs) -> bool:
    dropped = problem.features is not None and problem.features.keep
    return form.key_order == "ascending" and FORMATS[problem.dtype].narrow and form.gap_c > 0 and not dropped


def predicts_o(problem: BoundInputs) -> bool:
    """Whether section 14 covers O of the problem's form.

    Of quantised operands it covers those whose way to a number is declared. It does not cover dropout (weights may be scaled before their cast), maxima and sums that do not follow the order of the tiles, a row sum
    of rounded weights and 16-bit partial results, products and accumulators.
    """
    form = problem.form
    plain = (form.row_sum, form.partial_dtype, form.pv_dtype, form.o_accum) == ("unrounded", "fp32", "fp32", "fp32")
    scaled = problem.v_scale is None or form.dequantised != "unknown"
    exact_factor = math.frexp(form.p_factor)[0] == 0.5
    return plain and scaled and exact_factor and follows_order(problem) and _predicts(form, problem)


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


def _cast(x: Tensor, dtype: torch.dtype, factor: float = 1.0) -> Tensor:
    """Rounded to the dtype of weights, times a power of two there. torch goes by way of fp32, where the kernel's weights lie too: an end of their interval stays one."""
    return x.to(dtype).double() if factor == 1.0 else (x * factor).to(dtype).double() / factor


def _lowest(x: Tensor, dtype: torch.dtype, w: float, factor: float = 1.0) -> Tensor:
    """The smallest rounded weight: one that fp32 may flush is 0."""
    return threshold(_cast(x, dtype, factor), w, 0.0)


def _weight_format(problem: BoundInputs) -> tuple[torch.dtype, float, float]:
    """The dtype that weights are cast to, what they are multiplied by before, and the smallest normal weight."""
    form, x = problem.form, FORMATS[problem.dtype]
    if form.p_dtype is None:
        return x.dtype, 1.0, x.min_normal
    found = WEIGHT_FORMATS[form.p_dtype]
    smallest = found.min_normal if form.products in FP8_WEIGHTS else x.min_normal
    return getattr(torch, found.library), form.p_factor, smallest / form.p_factor


def predict_o(
    problem: BoundInputs,
    c: Coefficients,
    chunk: Chunk,
    *,
    L: Tensor,
    walk: RunningMaximum,
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
        walk: The running maxima of its rows.
        log_l: `[G, M, 1]` error of the logarithm of the row sum about L, float64's own included.
        inv: `[G, M, 1]` the largest that 1 / l may be.
        nv: Sum of |V| over visible keys, `[G, M, Dv]`.

    Returns:
        Both `[G, M, Dv]`; the error is infinite where nothing is predicted.
    """
    (dtype, factor, smallest), high, low = _weight_format(problem), walk.high, walk.low
    middle, width = (high + low).mul_(0.5), (high - low).mul_(0.5)
    share = torch.exp((middle - L.unsqueeze(-1)).clamp_(max=_LARGE))
    own = (c.eps + width[..., -1:, :] * (2 * c.gap)) * (1 + OWN) + OWN_FLAT
    carried = carried_scales(problem, chunk)
    unit = 1.0 if carried is None else tiles_of(carried.mT.expand_as(chunk.S), walk.block, fill=1.0)
    room = 0.0 if carried is None else 2 * c.u
    own = own if carried is None else own + room
    most = _cast(exp_(walk.up.sub(low).add_(own).clamp_(max=c.theta_bwd + room)) * unit, dtype, factor) / unit
    most = most * share
    least = _lowest(exp_(walk.down.sub(high).sub_(own)) * unit, dtype, c.w, factor) / unit * share

    # Tiles after which the maximum stays share its error, which moves O along O; it is taken out of rows that have most of their weight there.
    later = (walk.moves > 0).unsqueeze(-1)
    apart = (most.sum(-1, keepdim=True) * later).sum(-2, keepdim=True)
    shared = torch.where(apart < _FEW, width[..., -1:, :], 0.0)
    moved = torch.where(later, width + shared, torch.where(apart < _FEW, 0.0, width))
    rescales = walk.rescales.unsqueeze(-1)
    moved = moved + (walk.top - low) * (rescales > 0) * (c.gap * (1 + OWN)) + rescales * (c.eps * (1 + OWN))
    common = shared.squeeze(-1) + log_l
    moved = moved.clamp_(max=_LARGE).expm1_()
    coefficient = moved.mul(1 + c.tile_dot).add_(c.tile_dot)

    error = torch.addcmul(torch.sub(most, least).mul_(0.5), most, coefficient)
    error, weights = (y.flatten(-2)[..., : chunk.S.shape[-1]] for y in (error, most.add_(least).mul_(0.5)))

    value, passed = running_sum(weights, chunk.v, walk)
    # A subnormal weight enters a matrix unit with the exponent of the smallest normal number.
    aligned = 2 * c.tile_dot * smallest if problem.form.architecture != "ieee" else 0.0
    nv, least_units = smallest_units(chunk, nv)
    core = torch.addcmul(error @ chunk.av, inv, nv * (c.w + aligned) + (4 * c.w) * least_units)
    core = core + error_of_values(chunk, weights + error)
    core = (core + passed * (c.tile_sum * (1 + OWN))) * growth(c, walk)
    core = core + (value.abs() + core) * (common.clamp(max=_LARGE).expm1_() * (1 + c.div) + c.div)
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
    largest = torch.mul(Pb, 1 + OWN + OWN_FLAT).sub_(P, alpha=OWN)
    least = _lowest(torch.div(P * P, largest.clamp(min=c.w)), x.dtype, c.w)
    most = _cast(largest, x.dtype)
    weights, error = (most + least).mul_(0.5), (most - least).mul_(0.5)
    error.add_(most, alpha=c.dot_queries * (1 + OWN))
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
