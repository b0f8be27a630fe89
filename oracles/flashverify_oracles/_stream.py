"""Attention and its gradients from finite inputs, tile by tile."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from flashverify_oracles._exponential import exp_
from flashverify_oracles._pairs import tile_index

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify_oracles._buckets import Buckets
    from flashverify_oracles._inputs import CheckedInputs


def forward(problem: CheckedInputs) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """`o` `[G, g, Sq, Dv]`, `lse` and the largest visible logit `[G, g, Sq]`, and the logits where a backward needs no more of them again."""
    G, g, Sq, _ = problem.q.shape
    Dv = problem.v.shape[-1]
    o = problem.q.new_empty(G, g, Sq, Dv)
    lse, row_max = problem.q.new_empty(G, g, Sq), problem.q.new_empty(G, g, Sq)
    key_tiles, row_tiles, logits = problem.key_tiles(), problem.row_tiles(), None
    for rows in row_tiles:
        shape = (G, g, rows.stop - rows.start)
        q = problem.fold(problem.q, rows)
        m = q.new_full((*q.shape[:2], 1), -math.inf)
        for keys in key_tiles:
            s = problem.logits(problem.products(q, keys), rows, keys)
            m = torch.maximum(m, s.amax(-1, keepdim=True))
        row_max[:, :, rows] = m.view(shape)
        total, acc = torch.zeros_like(m), q.new_zeros(*q.shape[:2], Dv)
        if problem.sink is not None:
            sink = problem.sink.expand(*shape, 1).reshape(m.shape)
            empty = m == -math.inf
            m = torch.maximum(m, sink).masked_fill_(empty, -math.inf)
            total = (sink - m).exp_().masked_fill_(empty, 0.0)
        pivot = m.masked_fill(m == -math.inf, 0.0)
        for keys in key_tiles:
            if len(key_tiles) > 1:  # a single tile keeps its scores from the first pass
                s = problem.logits(problem.products(q, keys), rows, keys)
            if len(key_tiles) == len(row_tiles) == 1 and problem.softcap is None:
                logits = s
            p = exp_(s.sub_(pivot) if logits is None else s - pivot)
            total += p.sum(-1, keepdim=True)
            acc += torch.bmm(_kept(p, problem.dropped(rows, keys)), problem.v[:, keys])
        total.clamp_(min=1.0)  # the largest logit gives a row that sees a key total >= exp(0) already
        if problem.share != 1.0:
            acc.div_(problem.share)
        o[:, :, rows] = acc.div_(total).view(*shape, Dv)
        lse[:, :, rows] = total.log_().add_(m).view(shape)
    return o, lse, row_max, logits


def backward(
    problem: CheckedInputs,
    do: Tensor,
    lse: Tensor,
    offset: Tensor,
    bias_shape: tuple[int, ...] | None,
    buckets: Buckets | None,
    logits: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """`dq`, `dk`, `dv` in the shapes of q, k, v, `dbias` of `bias_shape` and `drelative_bias` by `buckets` if those are given.

    Args:
        problem: the problem.
        do: `[G, g, Sq, Dv]`.
        lse: `[G, g, Sq, 1]`; P is 0 on rows where it is not finite.
        offset: `[G, g, Sq, 1]` dlse - delta.
        bias_shape: a shape that broadcasts to `[B, Hq, Sq, Sk]`.
        buckets: into which dS is summed.
        logits: those of `forward`; None where they are to be computed.
    """
    dq = torch.zeros_like(problem.q)
    dk, dv = torch.zeros_like(problem.k), torch.zeros_like(problem.v)
    dbias = None if bias_shape is None else dq.new_zeros(bias_shape)
    drelative_bias = None if buckets is None else buckets.zeros(problem)
    pivot = pivots(lse)
    key_tiles = problem.key_tiles()
    for rows in problem.row_tiles():
        q_rows, do_rows = problem.fold(problem.q, rows), problem.fold(do, rows)
        pivot_rows, offset_rows = problem.fold(pivot, rows), problem.fold(offset, rows)
        dq_rows = torch.zeros_like(q_rows)
        for keys in key_tiles:
            if logits is None:
                t = problem.products(q_rows, keys)
                slope = problem.slope(t)
                p = exp_(problem.logits(t, rows, keys).sub_(pivot_rows))
            else:
                slope, p = None, exp_(logits - pivot_rows)
            dropped = problem.dropped(rows, keys)
            ds = _kept(torch.bmm(do_rows, problem.v[:, keys].mT), dropped)
            if problem.share != 1.0:
                ds.div_(problem.share)
            ds.add_(offset_rows).mul_(p)
            if dbias is not None:
                add_pairs(dbias, problem, ds, rows, keys)
            if buckets is not None and drelative_bias is not None:
                buckets.add(drelative_bias, problem.unfold(ds, rows, keys), rows, keys)
            if slope is not None:
                ds.mul_(slope)
            dv[:, keys] += torch.bmm(_kept(p, dropped).mT, do_rows)
            dq_rows += torch.bmm(ds, problem.k[:, keys])
            dk[:, keys] += torch.bmm(ds.mT, q_rows)
        dq[:, :, rows] = dq_rows.view(*dq.shape[:2], rows.stop - rows.start, dq.shape[-1])
    if problem.share != 1.0:
        dv.div_(problem.share)
    return dq.mul_(problem.scale), dk.mul_(problem.scale), dv, dbias, drelative_bias


def pivots(lse: Tensor) -> Tensor:
    """`lse` with +inf where it is not finite: exp(S - inf) is 0 for every S, -inf included."""
    return lse.masked_fill(~torch.isfinite(lse), math.inf)


def add_pairs(total: Tensor, problem: CheckedInputs, x: Tensor, rows: slice, keys: slice) -> None:
    """Adds a tile `x` `[G, g * rows, keys]` to `total`, summed over the axes along which the shape of `total` broadcasts."""
    B, Hkv, g = problem.heads
    part = total[tile_index(total.shape, rows, keys)]
    part += x.view(B, Hkv * g, rows.stop - rows.start, keys.stop - keys.start).sum_to_size(part.shape)


def _kept(x: Tensor, dropped: Tensor | None) -> Tensor:
    """A tile `[G, g * rows, keys]`, set to 0 in place where it is `dropped` `[B, Hkv, g, rows, keys]`."""
    if dropped is not None:
        x.view(dropped.shape).masked_fill_(dropped, 0.0)
    return x
