"""Attention and its gradients in float64, streamed over tiles, for every case.

Memory grows with the sequence length, never with its square; only a gradient of a bias is as large as the bias. Small problems are a
single tile.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flashverify_oracles import _stream, _taint
from flashverify_oracles._buckets import make_buckets
from flashverify_oracles._checks import all_finite, broadcasts, check_tensor
from flashverify_oracles._inputs import Made, Options, make_inputs
from flashverify_oracles._results import Backward, Forward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify_oracles._pairs import PairSource


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    visible: PairSource | None = None,
    softcap: float | None = None,
    biases: Sequence[PairSource] = (),
    sink: Tensor | None = None,
    keep: PairSource | None = None,
    dropout: float = 0.0,
    _tile: tuple[int, int] | None = None,
) -> Forward:
    """Attention output and log-sum-exp in float64.

    `t = scale * q k^T`; `S = softcap * tanh(t / softcap) + sum(biases)`, invisible entries absent; `lse = log(exp(sink) + sum(exp(S)))`;
    `P = exp(S - lse)`; `o = (keep P) v / (1 - dropout)`. Query head h reads key head `h // (Hq // Hkv)`. A row that sees no key has o = 0
    and lse = row_max = -inf, with a sink too. A key contributes nothing to a row that does not see it, whatever it holds; a non-finite
    input makes NaN of exactly the results that depend on it. Every size may be 0.

    A mask or a bias is a tensor that broadcasts to `[B, Hq, Sq, Sk]`, or a callable `(rows, keys)` of two slices with start and stop that
    returns a tensor broadcastable to `[B, Hq, rows, keys]`.

    Args:
        q: `[B, Hq, Sq, D]` floating, on any device.
        k: `[B, Hkv, Sk, D]` floating, Hq a multiple of Hkv.
        v: `[B, Hkv, Sk, Dv]` floating.
        scale: factor of the logits, any finite number. Products of inputs must stay finite in float64; those of fp32 inputs do.
        visible: which key each row sees, bool; None for every one.
        softcap: positive; None or 0 for no cap.
        biases: floating, natural units, each added to the capped logits. An infinity in one is a non-finite value, not a mask.
        sink: `[Hq]` floating, natural units: the logit of one more column, with v = 0, in every row that sees a key.
        keep: which pairs dropout keeps, bool; None for all. A dropped pair counts in lse as any other.
        dropout: in [0, 1); a positive one needs `keep`.

    Returns:
        The output, the log-sum-exp (base e) and the row maximum.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: shapes or devices do not belong together, or a number is out of its range.
    """
    options = Options(
        scale=scale, visible=visible, softcap=softcap, biases=biases, sink=sink, keep=keep, dropout=dropout, tile=_tile
    )
    with torch.no_grad():
        problem = make_inputs(q, k, v, options)
        o, lse, row_max, logits = _stream.forward(problem)
        reached = _taint.rows_reached_in_scores(problem)
        if reached is not None:
            row_max.masked_fill_((reached & (lse > -math.inf).unsqueeze(-1)).squeeze(-1), math.nan)
        if problem.bad_sink is not None:
            reached = problem.bad_sink if reached is None else reached | problem.bad_sink
        if reached is not None:
            reached = reached & (lse > -math.inf).unsqueeze(-1)
            o.masked_fill_(reached, math.nan)
            lse.masked_fill_(reached.squeeze(-1), math.nan)
        if problem.bad_v is not None:
            o.masked_fill_(_taint.rows_that_see(problem, problem.bad_v, kept=True), math.nan)
        B, Hq, Sq, _ = q.shape
        return Forward(
            o=o.view(B, Hq, Sq, v.shape[-1]),
            lse=lse.view(B, Hq, Sq),
            row_max=row_max.view(B, Hq, Sq),
            made=Made(q, k, v, options, problem, logits),
        )


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    *,
    scale: float,
    visible: PairSource | None = None,
    softcap: float | None = None,
    biases: Sequence[PairSource] = (),
    sink: Tensor | None = None,
    keep: PairSource | None = None,
    dropout: float = 0.0,
    forward: Forward,
    dlse: Tensor | None = None,
    given_o: Tensor | None = None,
    given_lse: Tensor | None = None,
    bias_shape: Sequence[int] | None = None,
    relative_buckets: PairSource | None = None,
    bucket_count: int | None = None,
    _tile: tuple[int, int] | None = None,
) -> Backward:
    """Gradients of `sum(o * do) + sum(lse * dlse)` in float64.

    `P = exp(S - lse)`, `delta = rowsum(do * o)`, `dP = keep do v^T / (1 - dropout)`, `dS = P * (dP - delta + dlse)`,
    `dv = (keep P / (1 - dropout))^T do`, `dbias = drelative_bias = dS`, each summed to its shape, `dt = dS * (1 - tanh(t / softcap)^2)`, `dq = scale * dt k`, `dk = scale * dt^T q`,
    `dsink = sum(exp(sink - lse) * (dlse - delta))`. Rows that see no key have delta = 0 and touch no gradient. With `given_o` or
    `given_lse` the gradients are conditional: delta is taken from that output, P from that log-sum-exp, which includes the sink; P is
    exactly 0 on rows where it is -inf.

    Args:
        q: `[B, Hq, Sq, D]` floating; this and what follows up to `dropout` as in `forward`.
        k: `[B, Hkv, Sk, D]` floating.
        v: `[B, Hkv, Sk, Dv]` floating.
        do: `[B, Hq, Sq, Dv]` floating, gradient of the output.
        scale: factor of the logits.
        visible: which key each row sees.
        softcap: of the products, or None.
        biases: added to the capped logits.
        sink: `[Hq]` floating, or None.
        keep: which pairs dropout keeps.
        dropout: in [0, 1).
        forward: result of `forward` on the same arguments; its lse says which rows see no key.
        dlse: `[B, Hq, Sq]` floating, gradient of the log-sum-exp (base e); None for 0.
        given_o: `[B, Hq, Sq, Dv]` floating, a subject's own output, used in delta.
        given_lse: `[B, Hq, Sq]` floating, a subject's own log-sum-exp in base e, used in P.
        bias_shape: shape of the bias whose gradient is asked for; it broadcasts to `[B, Hq, Sq, Sk]`.
        relative_buckets: which entry of its head's table each pair reads, integers in [0, bucket_count), as a tensor or a callable
            like a mask; the gradient of the table is asked for. The bias itself is one of `biases`.
        bucket_count: entries of the table of one head; given with `relative_buckets`.

    Returns:
        delta and the gradients; NaN in exactly the elements that depend on a non-finite value.

    Raises:
        TypeError: an argument has the wrong type or dtype.
        ValueError: shapes or devices do not belong together, or a number is out of its range.
    """
    options = Options(
        scale=scale, visible=visible, softcap=softcap, biases=biases, sink=sink, keep=keep, dropout=dropout, tile=_tile
    )
    with torch.no_grad():
        made = forward.made
        again = made if made and made.fits(q, k, v, options) else None
        problem, logits = (again.problem, again.logits) if again else (make_inputs(q, k, v, options), None)
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
        wanted = None if bias_shape is None else tuple(bias_shape)
        if wanted is not None and not broadcasts(wanted, (B, Hq, Sq, k.shape[2])):
            raise ValueError(f"bias_shape must broadcast to {(B, Hq, Sq, k.shape[2])}, got {wanted}")
        grid = problem.q.shape[:3]
        empty = (forward.lse == -math.inf).view(*grid, 1)
        lse = (forward.lse if given_lse is None else given_lse).to(torch.float64).reshape(*grid, 1)
        given = [do.reshape(*grid, Dv), (forward.o if given_o is None else given_o).reshape(*grid, Dv)]
        given += [] if dlse is None else [dlse.reshape(*grid, 1)]
        (do64, bad_do), (o, bad_o), *of_dlse = all_finite(*given)
        delta = (do64 * o).sum(-1, keepdim=True).masked_fill_(empty, 0.0)
        offset, bad_dlse = -delta, None
        if of_dlse:
            dlse64, bad_dlse = of_dlse[0]
            offset += dlse64
        buckets = make_buckets(relative_buckets, bucket_count, problem)
        dq, dk, dv, dbias, drelative_bias = _stream.backward(problem, do64, lse, offset, wanted, buckets, logits)
        by_sink = None if problem.sink is None else (problem.sink - _stream.pivots(lse)).exp_().mul_(offset)

        bad_lse, in_scores = ~(lse < math.inf), _taint.rows_reached_in_scores(problem)
        flags = (in_scores, problem.bad_v, problem.bad_sink, bad_do, bad_o, bad_dlse)
        if any(flag is not None for flag in flags) or bool(bad_lse.any()):
            in_p, in_delta = bad_lse.clone(), torch.zeros_like(bad_lse)
            for flag in (bad_do, bad_o):
                if flag is not None:
                    in_delta |= flag.any(-1, keepdim=True)
            in_sink = bad_lse | in_delta
            if in_scores is not None:
                in_p |= in_scores
            in_ds = in_p | in_delta
            if bad_dlse is not None:
                in_ds |= bad_dlse
                in_sink |= bad_dlse
            if problem.bad_sink is not None:
                in_sink |= problem.bad_sink
            if problem.bad_v is not None:
                in_ds |= _taint.rows_that_see(problem, problem.bad_v.any(-1, keepdim=True), kept=True)
            live = ~empty & (lse != -math.inf)
            delta.masked_fill_(in_delta & ~empty, math.nan)
            dq.masked_fill_(in_ds & live, math.nan)
            dk.masked_fill_(_taint.keys_seen_by(problem, in_ds & live), math.nan)
            in_dv = in_p.expand(do64.shape) if bad_do is None else in_p | bad_do
            dv.masked_fill_(_taint.keys_seen_by(problem, in_dv & live, kept=True), math.nan)
            if dbias is not None:
                dbias.masked_fill_(_taint.pairs_seen_by(problem, in_ds & live, dbias.shape), math.nan)
            if buckets is not None and drelative_bias is not None:
                drelative_bias.masked_fill_(_taint.buckets_seen_by(problem, in_ds & live, buckets), math.nan)
            if by_sink is not None:
                by_sink.masked_fill_(in_sink & live, math.nan)
        return Backward(
            delta=delta.view(B, Hq, Sq),
            dq=dq.view(q.shape),
            dk=dk.view(k.shape),
            dv=dv.view(v.shape),
            dbias=dbias,
            dsink=None if by_sink is None else by_sink.masked_fill_(empty, 0.0).view(B, Hq, Sq).sum((0, 2)),
            drelative_bias=drelative_bias,
        )
