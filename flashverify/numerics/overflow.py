"""The overflow domain of the backward: where an intermediate may leave its format (docs/bounds.md, section 13)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.numerics.chunk import Chunk
from flashverify.numerics.coefficients import OVERFLOW_FP32, Coefficients
from flashverify.numerics.gradients import Cores, Gradient, State
from flashverify.numerics.known_absent import below, nowhere

__all__ = ["Exempt", "overflow_domain"]


@dataclass(slots=True, kw_only=True)
class Exempt:
    """Exempt rows `[G, M, 1]`, dQ elements and, to be united over the chunks, dK and dV elements `[G, N, .]`.

    `hidden` are keys whose dK, `hidden_v` keys whose dV is exempt even if no row sees them; `pairs` `[G, M, N]` those at which dS itself
    may not be finite, None unless asked for. `empty` are rows that see nothing whose dQ is exempt.
    """

    delta: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    hidden: Tensor
    hidden_v: Tensor
    pairs: Tensor | None
    empty: Tensor


def overflow_domain(
    c: Coefficients,
    chunk: Chunk,
    g: Gradient,
    s: State,
    cores: Cores,
    logits: Tensor,
    lost_p: Tensor,
    lost_ds: Tensor,
    *,
    masked: bool = False,
    with_pairs: bool = False,
) -> Exempt:
    """Rows, keys and elements on which an intermediate may overflow (section 13).

    dS: `(|dS| + B_dS)(1 + u_x) >= max` at (i, j) exempts dQ_i and dK_j, and so does dP; P: dV_j. A row that overflows in S or delta exempts every
    key of its kv head: a tile holds pairs that the mask removes too, and there 0 meets the infinity or NaN of the row. `lost_p` and `lost_ds` are rows
    `[G, M, 1]` whose P and whose dS are lost because of the LSE and of O, if they see a key. An accumulator is at most the sum of the weights times the largest operand.

    Where the kernel sets dS of invisible pairs to 0 (`masked`), only visible pairs carry an overflow of dP, delta or the LSE to dK and a bias; a
    non-finite operand of the product with Q, and under a softcap the derivative of a logit that is NaN, still meet that 0.
    """
    limit_p, limit_s = c.p_max / (1 + c.u_p), c.p_max / (1 + c.u_p) / c.ds_cast if c.ds_cast else torch.inf
    limit_s = min(limit_s, OVERFLOW_FP32 / max(1.0, c.operand))
    room = OVERFLOW_FP32 - s.Adelta - (0.0 if g.dlse is None else g.dlse.abs())
    # Of invisible pairs too: there the weight is 0, and 0 * inf is NaN in a kernel that masks the logits only. So it is in rows that see nothing.
    largest_dp = min(OVERFLOW_FP32, c.dp_limit)
    rounded = g.AdP + s.Adelta if c.dp_delta and c.u_dp else g.AdP
    ado = g.ado
    lost_empty = every_dP = torch.zeros_like(chunk.empty)
    least = None if room.is_cuda else room.amin().item()
    if least is None or not (below(g.AdP, least) and below(rounded, largest_dp)):
        every_dP = (g.AdP >= room) | (rounded >= largest_dp)
    elif (
        least > 0
        and (masked or chunk.hidden_v is None)
        and all(map(nowhere, (logits, chunk.bad, g.bad, lost_p, lost_ds)))
        and _far_below(c, chunk, g, cores, limit_p, limit_s)
    ):
        return _nowhere(lost_p, cores.ds_max, with_pairs=with_pairs)
    dP = every_dP
    if masked:
        dP = dP if nowhere(dP) else _visible(chunk, dP)
    elif g.empty_ado is not None:
        ado = g.ado + g.empty_ado
        of_empty = (g.empty_ado @ chunk.av.mT) * chunk.factor
        wide = (of_empty if g.empty_dlse is None else of_empty + g.empty_dlse) >= largest_dp
        dP, lost_empty = dP | wide, wide.any(-1, keepdim=True)
    live = chunk.live
    lost_ds = lost_ds | (room <= 0)
    largest_p = cores.Pb if chunk.kept is None else cores.Pb * chunk.factor
    P_row, P_col = (largest_p.amax(dim) for dim in (-1, -2))
    S_row, S_col = (cores.ds_max.amax(dim) for dim in (-1, -2))
    if cores.ds_wide is not cores.ds_max:  # dS before the derivative of a softcap is not cast, but may leave fp32
        dP = dP if below(cores.ds_wide, OVERFLOW_FP32) else dP | (cores.ds_wide >= OVERFLOW_FP32)
    limit_row = min(OVERFLOW_FP32, limit_p) if c.ds_rounded_p else OVERFLOW_FP32
    if c.delta_weights:
        # A dP that overflows reaches delta and with it the whole row, that of an invisible pair too: its weight is 0. So does an infinite P,
        # or one whose rounding is infinite: times a dP of 0 it is NaN.
        wide = (every_dP | dP).any(-1, keepdim=True) | (P_row >= limit_row).unsqueeze(-1)
        wide = wide | ((cores.Pb * g.AdP).sum(-1, keepdim=True) >= OVERFLOW_FP32)
        lost_ds = lost_ds | wide
    over_row = ((S_row >= limit_s) | (P_row >= limit_row)).unsqueeze(-1) | dP.any(-1, keepdim=True)
    over_col = ((S_col >= limit_s) | (P_col >= limit_row)).unsqueeze(-1) | dP.any(-2).unsqueeze(-1)
    whole = logits | chunk.bad | g.bad | (lost_p & live)
    row = whole | (lost_ds & live)
    if chunk.bad_v is not None:
        row = row | chunk.bad_v.any(-1, keepdim=True)
    # A key that no row sees may share a tile with rows that do the product: 0 * inf in its dK and in their dQ. Rows beyond the key lengths are the caller's to zero.
    hidden = torch.zeros_like(over_col)
    if chunk.hidden_v is not None and not masked:
        meets = ado.sum(-1, keepdim=True) * chunk.hidden_v.amax(-2, keepdim=True) >= largest_dp
        over_row, lost_empty = over_row | meets, lost_empty | (meets & chunk.empty)
        if c.delta_weights:
            row = row | (meets & live)
        hidden = chunk.hidden_v * ado.sum(-1).amax(-1)[:, None, None] >= largest_dp
    if c.delta_weights:  # 0 * inf in the delta of a row that sees nothing, and then in its dS
        row = row | lost_empty
    reach_v = whole.any(-2, keepdim=True)
    if masked:
        capped = chunk.parts is not None and chunk.parts.cap is not None
        bad = chunk.bad | g.bad | logits if capped else chunk.bad | g.bad
        hidden = hidden | bad.any(-2, keepdim=True)
        reach_k = hidden
        if not nowhere(row):
            reach_k = hidden | _visible(chunk, row.expand(*row.shape[:-1], g.AdP.shape[-1])).any(-2).unsqueeze(-1)
    else:
        reach_k = row.any(-2, keepdim=True)
        hidden = hidden | reach_k
    pairs = None
    if with_pairs:
        lost = (largest_p >= OVERFLOW_FP32) | row
        pairs = dP | (_visible(chunk, lost) if masked else lost)

    # Instead of dS the scale may multiply K or Q: an infinity meets every dS of the channel, that of invisible pairs too.
    largest_k, largest_q, largest_do = (x.amax(-2, keepdim=True) for x in (chunk.ak, chunk.aq, g.ado))
    lost_q = row | over_row
    if c.operand:
        lost_q = lost_q | (largest_k * c.operand >= OVERFLOW_FP32)
        hidden = hidden | (largest_q * c.operand >= OVERFLOW_FP32).any(-1, keepdim=True)

    def accumulator(weights: Tensor, largest: Tensor, limit: float) -> Tensor:
        weights = weights.unsqueeze(-1)
        if not weights.is_cuda and largest.numel() and below(weights.amax() * largest.amax(), limit):
            return torch.zeros_like(weights, dtype=torch.bool)
        return weights * largest >= limit

    acc_q = accumulator(cores.ds_max.sum(-1), largest_k, c.acc_q)
    acc_k = accumulator(cores.ds_max.sum(-2), largest_q, c.acc_k)
    acc_v = accumulator(largest_p.sum(-2), largest_do, c.acc_v)
    return Exempt(
        delta=row,
        dq=lost_q | acc_q,
        dk=reach_k | over_col | acc_k | hidden,
        dv=reach_v | (P_col >= limit_p).unsqueeze(-1) | acc_v,
        hidden=hidden,
        hidden_v=reach_v.expand(*reach_v.shape[:-2], *hidden.shape[-2:]),
        pairs=pairs,
        empty=lost_empty,
    )


def _far_below(c: Coefficients, chunk: Chunk, g: Gradient, cores: Cores, limit_p: float, limit_s: float) -> bool:
    """Whether nothing beside dP and delta comes near the end of its range: a sum is at most its largest term times the number of its terms."""
    if c.delta_weights or g.empty_ado is not None or chunk.bad_v is not None:
        return False
    p, ds, k, q, do = (
        x.amax().item() if x.numel() else 0.0 for x in (cores.Pb, cores.ds_max, chunk.ak, chunk.aq, g.ado)
    )
    p, (rows, keys) = p * chunk.factor, (2 * count for count in cores.ds_max.shape[-2:])
    return (
        p < min(limit_p, OVERFLOW_FP32)
        and ds < limit_s
        and (cores.ds_wide is cores.ds_max or below(cores.ds_wide, OVERFLOW_FP32))
        and max(k, q) * c.operand < OVERFLOW_FP32
        and keys * ds * k < c.acc_q
        and rows * ds * q < c.acc_k
        and rows * p * do < c.acc_v
    )


def _nowhere(rows: Tensor, pairs: Tensor, *, with_pairs: bool) -> Exempt:
    """Nothing is exempt; `rows` are shaped as the rows, `pairs` as the pairs."""
    none = torch.zeros_like(rows, dtype=torch.bool)
    keys = none.new_zeros((*pairs.shape[:-2], pairs.shape[-1], 1))
    return Exempt(
        delta=none, dq=none, dk=keys, dv=keys, hidden=keys, hidden_v=keys, empty=none,
        pairs=torch.zeros_like(pairs, dtype=torch.bool) if with_pairs else None,
    )  # fmt: skip


def _visible(chunk: Chunk, pairs: Tensor) -> Tensor:
    """The visible ones of `pairs`, bool `[G, M, N]`."""
    return pairs if chunk.pairs is None else pairs & chunk.pairs
