"""Attention and its gradients in float64, streamed over tiles, for every case.

Memory grows with the sequence length, never with its square. Small problems are a single tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify_oracles._problem import Problem, Visible, check_tensor, finite, make_problem


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """Result of the forward pass, float64.

    Attributes:
        o: `[B, Hq, Sq, Dv]` output.
        lse: `[B, Hq, Sq]` log-sum-exp of the visible logits, base e; -inf on rows that see no key.
        row_max: `[B, Hq, Sq]` largest visible logit, natural units; -inf on rows that see no key.
    """

    o: Tensor
    lse: Tensor
    row_max: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """Gradients, float64.

    Attributes:
        delta: `[B, Hq, Sq]` rowsum(dO * O), without dLSE.
        dq: `[B, Hq, Sq, D]`.
        dk: `[B, Hkv, Sk, D]` summed over the query heads of the group.
        dv: `[B, Hkv, Sk, Dv]` summed over the query heads of the group.
    """

    delta: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    visible: Visible = None,
    _tile: tuple[int, int] | None = None,
) -> Forward:
    """Attention output and log-sum-exp in float64.

    `S = scale * q k^T`, invisible entries absent; `o = softmax(S) v`; `lse = log(sum(exp(S)))`. Query head h reads key head
    `h // (Hq // Hkv)`. A row that sees no key has o = 0 and lse = row_max = -inf. A key contributes nothing to a row that does not see
    it, whatever it holds; a non-finite input makes NaN of exactly the results that depend on it. Every size may be 0.

    Args:
        q: `[B, Hq, Sq, D]` floating, on any device.
        k: `[B, Hkv, Sk, D]` floating, Hq a multiple of Hkv.
        v: `[B, Hkv, Sk, Dv]` floating.
        scale: factor of the logits, any finite number. Products of inputs must stay finite in float64; those of fp32 inputs do.
        visible: which key each row sees: None for every one, a bool tensor that broadcasts to `[B, Hq, Sq, Sk]`, or a callable
            `(rows, keys)` of two slices with start and stop that returns a bool tensor broadcastable to `[B, Hq, rows, keys]`.

    Returns:
        The output, the log-sum-exp (base e) and the row maximum.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: shapes or devices do not belong together, or `scale` is not finite.
    """
    with torch.no_grad():
        problem = make_problem(q, k, v, scale, visible, _tile)
        o, lse, row_max = _forward(problem)
        if problem.bad_q is not None or problem.bad_k is not None:
            reached = _rows_reached_in_scores(problem) & (lse > -math.inf).unsqueeze(-1)
            o.masked_fill_(reached, math.nan)
            lse.masked_fill_(reached.squeeze(-1), math.nan)
            row_max.masked_fill_(reached.squeeze(-1), math.nan)
        if problem.bad_v is not None:
            o.masked_fill_(problem.rows_that_see(problem.bad_v), math.nan)
        B, Hq, Sq, _ = q.shape
        return Forward(o=o.view(B, Hq, Sq, v.shape[-1]), lse=lse.view(B, Hq, Sq), row_max=row_max.view(B, Hq, Sq))


def _forward(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    G, g, Sq, _ = problem.q.shape
    Dv = problem.v.shape[-1]
    o = problem.q.new_empty(G, g, Sq, Dv)
    lse, row_max = problem.q.new_empty(G, g, Sq), problem.q.new_empty(G, g, Sq)
    key_tiles = problem.key_tiles()
    for rows in problem.row_tiles():
        shape = (G, g, rows.stop - rows.start)
        q = problem.fold(problem.q, rows)
        m = q.new_full((*q.shape[:2], 1), -math.inf)
        for keys in key_tiles:
            s = problem.scores(q, rows, keys)
            m = torch.maximum(m, s.amax(-1, keepdim=True))
        pivot = m.masked_fill(m == -math.inf, 0.0)
        total, acc = torch.zeros_like(m), q.new_zeros(*q.shape[:2], Dv)
        for keys in key_tiles:
            if len(key_tiles) > 1:  # a single tile keeps its scores from the first pass
                s = problem.scores(q, rows, keys)
            p = s.sub_(pivot).exp_()
            total += p.sum(-1, keepdim=True)
            acc += torch.bmm(p, problem.v[:, keys])
        total.clamp_(min=1.0)  # a row that sees a key has total >= exp(0) already
        o[:, :, rows] = acc.div_(total).view(*shape, Dv)
        row_max[:, :, rows] = m.view(shape)
        lse[:, :, rows] = total.log_().add_(m).view(shape)
    return o, lse, row_max


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    *,
    scale: float,
    visible: Visible = None,
    forward: Forward,
    dlse: Tensor | None = None,
    given_o: Tensor | None = None,
    given_lse: Tensor | None = None,
    _tile: tuple[int, int] | None = None,
) -> Backward:
    """Gradients of `sum(o * do) + sum(lse * dlse)` in float64.

    `P = exp(S - lse)`, `delta = rowsum(do * o)`, `dS = P * (do v^T - delta + dlse)`, `dq = scale * dS k`, `dk = scale * dS^T q`,
    `dv = P^T do`. Rows that see no key have delta = 0 and touch no gradient. With `given_o` or `given_lse` the gradients are
    conditional: delta is taken from that output, P from that log-sum-exp; P is exactly 0 on rows where it is -inf.

    Args:
        q: `[B, Hq, Sq, D]` floating.
        k: `[B, Hkv, Sk, D]` floating.
        v: `[B, Hkv, Sk, Dv]` floating.
        do: `[B, Hq, Sq, Dv]` floating, gradient of the output.
        scale: factor of the logits.
        visible: which key each row sees, as in `forward`.
        forward: result of `forward` on the same arguments; its lse says which rows see no key.
        dlse: `[B, Hq, Sq]` floating, gradient of the log-sum-exp (base e); None for 0.
        given_o: `[B, Hq, Sq, Dv]` floating, a subject's own output, used in delta.
        given_lse: `[B, Hq, Sq]` floating, a subject's own log-sum-exp in base e, used in P.

    Returns:
        delta and the three gradients; NaN in exactly the elements that depend on a non-finite value.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: shapes or devices do not belong together, or `scale` is not finite.
    """
    with torch.no_grad():
        problem = make_problem(q, k, v, scale, visible, _tile)
        B, Hq, Sq, _ = q.shape
        Dv = v.shape[-1]
        for name, x, shape in (
            ("do", do, (B, Hq, Sq, Dv)),
            ("forward.o", forward.o, (B, Hq, Sq, Dv)),
            ("forward.lse", forward.lse, (B, Hq, Sq)),
            ("dlse", dlse, (B, Hq, Sq)),
            ("given_o", given_o, (B, Hq, Sq, Dv)),
            ("given_lse", given_lse, (B, Hq, Sq)),
        ):
            if x is not None:
                check_tensor(name, x, shape, q.device)
        grid = problem.q.shape[:3]
        empty = (forward.lse == -math.inf).view(*grid, 1)
        lse = (forward.lse if given_lse is None else given_lse).to(torch.float64).reshape(*grid, 1)
        do64, bad_do = finite(do.reshape(*grid, Dv))
        o, bad_o = finite((forward.o if given_o is None else given_o).reshape(*grid, Dv))
        delta = (do64 * o).sum(-1, keepdim=True).masked_fill_(empty, 0.0)
        offset, bad_dlse = -delta, None
        if dlse is not None:
            dlse64, bad_dlse = finite(dlse.reshape(*grid, 1))
            offset += dlse64
        dq, dk, dv = _backward(problem, do64, lse, offset)

        bad_lse = ~(lse < math.inf)
        flags = (problem.bad_q, problem.bad_k, problem.bad_v, bad_do, bad_o, bad_dlse)
        if any(flag is not None for flag in flags) or bool(bad_lse.any()):
            in_p, in_delta = bad_lse | _rows_reached_in_scores(problem), torch.zeros_like(bad_lse)
            for flag in (bad_do, bad_o):
                if flag is not None:
                    in_delta |= flag.any(-1, keepdim=True)
            in_ds = in_p | in_delta
            if bad_dlse is not None:
                in_ds |= bad_dlse
            if problem.bad_v is not None:
                in_ds |= problem.rows_that_see(problem.bad_v.any(-1, keepdim=True))
            live = ~empty & (lse != -math.inf)
            delta.masked_fill_(in_delta & ~empty, math.nan)
            dq.masked_fill_(in_ds & live, math.nan)
            dk.masked_fill_(problem.keys_seen_by(in_ds & live), math.nan)
            in_dv = in_p.expand(do64.shape) if bad_do is None else in_p | bad_do
            dv.masked_fill_(problem.keys_seen_by(in_dv & live), math.nan)
        return Backward(delta=delta.view(B, Hq, Sq), dq=dq.view(q.shape), dk=dk.view(k.shape), dv=dv.view(v.shape))


def _backward(problem: Problem, do: Tensor, lse: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients from finite inputs; `lse` and `offset` (dlse - delta) are `[G, g, Sq, 1]`."""
    dq = torch.zeros_like(problem.q)
    dk, dv = torch.zeros_like(problem.k), torch.zeros_like(problem.v)
    # exp(S - inf) is 0 for every S, -inf included.
    pivot = lse.masked_fill(~torch.isfinite(lse), math.inf)
    key_tiles = problem.key_tiles()
    for rows in problem.row_tiles():
        q_rows, do_rows = problem.fold(problem.q, rows), problem.fold(do, rows)
        pivot_rows, offset_rows = problem.fold(pivot, rows), problem.fold(offset, rows)
        dq_rows = torch.zeros_like(q_rows)
        for keys in key_tiles:
            p = problem.scores(q_rows, rows, keys).sub_(pivot_rows).exp_()
            dv[:, keys] += torch.bmm(p.mT, do_rows)
            ds = torch.bmm(do_rows, problem.v[:, keys].mT).add_(offset_rows).mul_(p)
            dq_rows += torch.bmm(ds, problem.k[:, keys])
            dk[:, keys] += torch.bmm(ds.mT, q_rows)
        dq[:, :, rows] = dq_rows.view(*dq.shape[:2], rows.stop - rows.start, dq.shape[-1])
    return dq.mul_(problem.scale), dk.mul_(problem.scale), dv


def _rows_reached_in_scores(problem: Problem) -> Tensor:
    """`[G, g, Sq, 1]` bool: rows with a non-finite query or one in a key that they see."""
    reached = problem.q.new_zeros(*problem.q.shape[:3], 1, dtype=torch.bool)
    if problem.bad_q is not None:
        reached |= problem.bad_q
    if problem.bad_k is not None:
        reached |= problem.rows_that_see(problem.bad_k)
    return reached
