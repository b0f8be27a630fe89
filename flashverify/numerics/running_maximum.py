"""What a declared order of tiles says of the running maximum of a row: between which numbers it lies, and where it may change (docs/bounds.md, section 14)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from flashverify.numerics.chunk import MASKED, Chunk
from flashverify.numerics.logits import sink_error

if TYPE_CHECKING:
    from flashverify.numerics.bound_inputs import BoundInputs
    from flashverify.numerics.coefficients import Coefficients

__all__ = ["OWN", "OWN_FLAT", "RunningMaximum", "follows_order", "running_maximum", "tiles_of"]

OWN = 2.0**-20
"""What float64 adds to an error that was derived at 2^-24, relative to it."""
OWN_FLAT = 2.0**-46
"""The same, absolute in an exponent."""


@dataclass(slots=True, kw_only=True, eq=False)
class RunningMaximum:
    """The maxima of each row after each tile; T tiles.

    Attributes:
        up, down: `[G, M, T, block]` the largest and smallest logits that a kernel may compute.
        high, low: `[G, M, T, 1]` between which the maximum lies after the tile.
        top: `[G, M, 1, 1]` the largest that the last maximum may be, of a sink too.
        seen: `[G, M, T]` 1 where the tile holds a visible key of the row, else 0.
        moves: `[G, M, T]` later tiles that may raise the maximum.
        rescales: `[G, M, T]` factors other than 1 that may multiply the weights of the tile later, that of a sink too.
        within: Roundings of a term of the row sum that do not depend on its tile: a sum within the tile, and two for a sink.
        block: Keys of a tile.
    """

    up: Tensor
    down: Tensor
    high: Tensor
    low: Tensor
    top: Tensor
    seen: Tensor
    moves: Tensor
    rescales: Tensor
    within: int
    block: int

    def row_sum(self, c: Coefficients, P: Tensor, apart: Tensor) -> Tensor:
        """`[G, M, 1]` error of the logarithm of l from its additions: each tile that holds a visible key adds to what came before.

        Args:
            c: The coefficients.
            P: Exact weights, `[G, M, N]`.
            apart: `[G, M, 1]` the largest sum of `|P_hat - P|` over keys, for normalised computed weights.
        """
        tiles = self.seen.sum(-1, keepdim=True)
        most = (tiles + self.within) * c.u
        if self.seen.shape[-1] > 1:
            before = tiles_of(P, self.block, fill=0.0).sum(-1).cumsum(-1)
            tiles = torch.minimum((before * self.seen).sum(-1, keepdim=True) * (1 + OWN) + tiles * apart, tiles)
        return (tiles + self.within) * c.u / (1 - most.clamp(max=0.5))

    def constants(self, c: Coefficients) -> Tensor:
        """What the exponential and the rescales add to theta: `[G, M, N + fill]` with the keys that fill the last tile, or `[G, M, 1]` for a single tile."""
        of_tiles = (self.rescales * (c.eps + c.u) + c.eps) * (1 + OWN)
        return of_tiles if of_tiles.shape[-1] == 1 else of_tiles.repeat_interleave(self.block, -1)


def follows_order(problem: BoundInputs) -> bool:
    """Whether the form declares the order of the tiles, and maxima and sums that are carried from one tile to the next in the plain way.

    It does not with splits, a threshold of the rescale, a maximum that is rounded apart, another normalisation than at the end, and more blocks
    than the keys have tiles.
    """
    form = problem.form
    if form.block_n is None or (form.n_blocks or 0) > math.ceil(problem.shape.Sk / form.block_n):
        return False
    plain = form.n_splits == 1 and form.partials == "computed" and form.rescale_threshold == 0 and form.gap_c > 0
    return plain and (form.key_order, form.max_source, form.normalise) == ("ascending", "exponent", "end")


def tiles_of(x: Tensor, block: int, fill: float = MASKED) -> Tensor:
    """`[G, M, N]` as `[G, M, T, block]`, filled up with invisible pairs."""
    G, M, N = x.shape
    if block >= N:
        return x.unsqueeze(-2)
    rest = -N % block
    return (pad(x, (0, rest), value=fill) if rest else x).view(G, M, -1, block)


def running_maximum(problem: BoundInputs, c: Coefficients, chunk: Chunk, error: Tensor) -> RunningMaximum:
    """The running maxima of a chunk.

    `m_new = m` and `exp(m - m_new) = 1` hold to the last bit where no logit of a tile exceeds the maximum before it, so such a rescale errs by nothing. The first
    tile of a row rescales zeros.

    Args:
        problem: The problem, of a form that `follows_order`.
        c: The coefficients.
        chunk: The chunk.
        error: Largest error of a logit, `[G, M, N]`, without the constants of theta.
    """
    form = problem.form
    assert form.block_n is not None
    up = tiles_of(torch.add(chunk.S, error, alpha=1 + OWN), form.block_n)
    down = tiles_of(torch.sub(chunk.S, error, alpha=1 + OWN), form.block_n)
    highest, lowest = up.amax(-1) + OWN_FLAT, down.amax(-1) - OWN_FLAT
    high, low = torch.cummax(highest, -1).values, torch.cummax(lowest, -1).values
    may_move = torch.zeros_like(high)
    may_move[..., 1:] = (highest[..., 1:] > low[..., :-1]) & (low[..., :-1] > MASKED / 2)
    moves = may_move.flip(-1).cumsum(-1).flip(-1) - may_move
    rescales, top = moves, high[..., -1:]
    seen = (highest > MASKED / 2).double()
    if form.exp == "poly" or form.exp_eps is not None:  # exp(0) need not be 1
        rescales = torch.arange(high.shape[-1] - 1, -1, -1, device=high.device).double().expand_as(high)
    if chunk.sink is not None:
        reach = chunk.sink + sink_error(c, chunk, chunk.sink) * (1 + OWN) + OWN_FLAT
        rescales = rescales + (reach > low[..., -1:])
        top = torch.maximum(top, reach)
    return RunningMaximum(
        up=up, down=down, high=high.unsqueeze(-1), low=low.unsqueeze(-1), top=top.unsqueeze(-1),
        seen=seen, moves=moves, rescales=rescales,
        within=up.shape[-1] + 2 * (chunk.sink is not None), block=form.block_n,
    )  # fmt: skip
