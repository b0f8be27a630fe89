"""Which results depend on a non-finite input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify_oracles._checks import finite
from flashverify_oracles._stream import add_pairs

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify_oracles._buckets import Buckets
    from flashverify_oracles._inputs import CheckedInputs


def rows_reached_in_scores(problem: CheckedInputs) -> Tensor | None:
    """`[G, g, Sq, 1]` bool: rows with a non-finite query, or one in a key or a bias that they see; None if no such row can be."""
    reached = None if problem.bad_q is None else problem.bad_q
    if problem.bad_k is not None:
        by_key = rows_that_see(problem, problem.bad_k)
        reached = by_key if reached is None else reached | by_key
    if problem.biases:
        by_bias = _rows_with_a_bad_bias(problem)
        reached = by_bias if reached is None else reached | by_bias
    return reached


def rows_that_see(problem: CheckedInputs, flags: Tensor, *, kept: bool = False) -> Tensor:
    """`[G, g, Sq, C]` bool: whether row i sees (and keeps) a key flagged in `flags` `[G, Sk, C]`, channel by channel."""
    G, g, Sq, _ = problem.q.shape
    seen = flags.new_zeros(G, g, Sq, flags.shape[-1])
    for rows in problem.row_tiles():
        for keys in problem.key_tiles():
            hit = torch.bmm(_weight(problem, rows, keys, kept=kept), flags[:, keys].double()) > 0
            seen[:, :, rows] |= hit.view(G, g, rows.stop - rows.start, flags.shape[-1])
    return seen


def keys_seen_by(problem: CheckedInputs, flags: Tensor, *, kept: bool = False) -> Tensor:
    """`[G, Sk, C]` bool: whether key j is seen (and kept) by a row flagged in `flags` `[G, g, Sq, C]`, channel by channel."""
    G, Sk, _ = problem.k.shape
    seen = flags.new_zeros(G, Sk, flags.shape[-1])
    for rows in problem.row_tiles():
        for keys in problem.key_tiles():
            weight = _weight(problem, rows, keys, kept=kept)
            seen[:, keys] |= torch.bmm(weight.mT, problem.fold(flags, rows).double()) > 0
    return seen


def pairs_seen_by(problem: CheckedInputs, flags: Tensor, shape: torch.Size) -> Tensor:
    """Bool of `shape`: whether an element, summed over the broadcast axes, has a visible pair in a row flagged in `flags`.

    Args:
        problem: the problem.
        flags: `[G, g, Sq, 1]` bool.
        shape: a shape that broadcasts to `[B, Hq, Sq, Sk]`.
    """
    total = problem.q.new_zeros(shape)
    for rows in problem.row_tiles():
        for keys in problem.key_tiles():
            hit = _weight(problem, rows, keys).mul_(problem.fold(flags, rows).double())
            add_pairs(total, problem, hit, rows, keys)
    return total > 0


def buckets_seen_by(problem: CheckedInputs, flags: Tensor, buckets: Buckets) -> Tensor:
    """`[Hq, count]` bool: whether a bucket of the head has a visible pair in a row flagged in `flags` `[G, g, Sq, 1]`."""
    total = buckets.zeros(problem)
    for rows in problem.row_tiles():
        for keys in problem.key_tiles():
            hit = _weight(problem, rows, keys).mul_(problem.fold(flags, rows).double())
            buckets.add(total, problem.unfold(hit, rows, keys), rows, keys)
    return total > 0


def _rows_with_a_bad_bias(problem: CheckedInputs) -> Tensor:
    G, g, Sq, _ = problem.q.shape
    reached = problem.q.new_zeros(G, g, Sq, 1, dtype=torch.bool)
    for rows in problem.row_tiles():
        for keys in problem.key_tiles():
            for bias in problem.biases:
                bad = finite(bias.tile(rows, keys))[1]
                if bad is not None:
                    hit = problem.unfold(_weight(problem, rows, keys), rows, keys).mul_(bad.double()) > 0
                    reached[:, :, rows] |= hit.any(-1).view(G, g, rows.stop - rows.start, 1)
    return reached


def _weight(problem: CheckedInputs, rows: slice, keys: slice, *, kept: bool = False) -> Tensor:
    """`[G, g * rows, keys]` float64: 1 where the key is visible (and kept), else 0."""
    nr, nk = rows.stop - rows.start, keys.stop - keys.start
    ones = problem.q.new_ones(*problem.heads, nr, nk)
    if problem.visible is not None:
        ones.masked_fill_(~problem.visible.tile(rows, keys), 0.0)
    dropped = problem.dropped(rows, keys) if kept else None
    if dropped is not None:
        ones.masked_fill_(dropped, 0.0)
    return ones.view(problem.q.shape[0], problem.q.shape[1] * nr, nk)
