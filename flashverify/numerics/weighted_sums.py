"""Every 16-bit output as a weighted sum over keys or rows: what one tile contributes, and the noise of weights that are rounded to nearest.

docs/bounds.md, section 22.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import Chunk, finite_rows
from flashverify.numerics.exponential import exp_

__all__ = ["WeightedSum", "gradient_sums", "only_chunk", "output_sum", "row_weights"]

# e^100 lies above the range of every weight that is judged.
_CLAMP = 100.0
_TINY = 1e-300
_KINDS = 4
# Weights that are nearer to each other are of one kind.
_ALIKE = 2.0**-16
_SPREAD = 0.25
# A weight so close below a power of two, as a fraction of it, may be rounded above that power.
_EDGE = 2.0**-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightedSum:
    """`y = weights @ operand`, float64; R rows of the output, T terms, C channels.

    Attributes:
        weights: `[G, R, T]`; the kernel rounds them to the input dtype.
        operand: `[G, T, C]`.
        length: Of the sequence of keys or rows that the terms run through, once or more often.
        unit: Unit roundoff of the weights' dtype.
        floor: Absolute error of a weight that is subnormal there; one of twice that may become zero.
        cast: The kernel rounds `weights / cast` to that dtype; None where it rounds an unknown multiple of them.
    """

    weights: Tensor
    operand: Tensor
    length: int
    unit: float
    floor: float
    cast: float | None = None

    def noise(self) -> Tensor:
        """`[G, R, C]` variance of y from the roundings of the weights: independent and uniform, `(u w)^2 / 3` at most, `h^2 / 3` where `cast` says their spacing 2h."""
        size, w = self.operand.square(), self.weights.abs()
        if self.cast is not None and self.cast > 0:
            w = torch.exp2(torch.floor(torch.log2((w / self.cast * (1 + _EDGE)).clamp(min=_TINY)))) * self.cast
        found: Tensor = (w.square() @ size).mul_(self.unit**2 / 3)
        return found + size.sum(-2, keepdim=True) * (self.floor**2 / 3)

    def vanishing(self) -> Tensor:
        """`[G, R, C]`: what y loses at most by weights that may be rounded to zero, which has a direction."""
        size = self.weights.abs()
        found: Tensor = torch.where(size <= 2 * self.floor, size, 0.0) @ self.operand.abs()
        return found

    def various(self) -> Tensor:
        """`[G, R]` bool: the weights of a row are rounded each in its own way: they are worth four different ones, and differ by a quarter of their size."""
        size, _ = self.weights.abs().sort(-1)
        share = size / size.sum(-1, keepdim=True).clamp(min=_TINY)
        log = torch.where(size > 0, size, 1.0).log()
        spread = (share * (log - (share * log).sum(-1, keepdim=True)).square()).sum(-1)
        kind = torch.nn.functional.pad(size[..., 1:] > size[..., :-1] * (1 + _ALIKE), (1, 0)).cumsum(-1)
        kinds = torch.zeros_like(share).scatter_add_(-1, kind, share)
        return (size.sum(-1) > 0) & (kinds.square().sum(-1) <= 1 / _KINDS) & (spread >= _SPREAD**2)

    @property
    def place(self) -> Tensor:
        """`[T]` position of each term in its sequence, which tiles are cut from."""
        once = torch.arange(self.length, device=self.weights.device)
        return once.repeat(self.weights.shape[-1] // max(self.length, 1))

    def tiles(self, width: int) -> int:
        """Number of tiles of `width` places."""
        return -(-self.length // width)

    def share(self, width: int, number: int) -> Tensor:
        """What one tile of `width` places contributes to y, `[G, R, C]`."""
        here = (self.place // width == number).nonzero().squeeze(-1)
        return self.weights[..., here] @ self.operand[:, here]

    def along(self, direction: Tensor) -> Tensor:
        """`[G, R, T]`: what each term contributes to the product of y with a direction `[G, R, C]`, summed over the channels."""
        return (direction @ self.operand.mT).mul_(self.weights)


def only_chunk(problem: BoundInputs) -> Chunk | None:
    """The chunk that holds all rows of the problem; None where there are several."""
    chunks = problem.chunks()
    first = next(chunks)
    return first if next(chunks, None) is None else None


def output_sum(problem: BoundInputs, chunk: Chunk, lse: Tensor) -> WeightedSum:
    """O as a sum over keys.

    Args:
        problem: The problem.
        chunk: Its only chunk.
        lse: `[B, Hq, Sq]`, natural.
    """
    kept = _weights(problem, chunk, lse)
    if chunk.kept is not None:
        kept = kept * chunk.kept * chunk.factor
    return _sum(problem, kept, chunk.v, problem.shape.Sk)


def row_weights(problem: BoundInputs, chunk: Chunk, lse: Tensor) -> WeightedSum:
    """The sum of P of each row, 1 where there is no sink, as a sum over keys of P times one.

    Args:
        problem: The problem.
        chunk: Its only chunk.
        lse: `[B, Hq, Sq]`, natural.
    """
    weights = _weights(problem, chunk, lse)
    ones = weights.new_ones(weights.shape[0], weights.shape[2], 1)
    return _sum(problem, weights, ones, problem.shape.Sk)


def gradient_sums(
    problem: BoundInputs, chunk: Chunk, *, o: Tensor, lse: Tensor, do: Tensor, dlse: Tensor | None
) -> dict[str, WeightedSum]:
    """DQ as a sum over keys, dK and dV as sums over the rows of a group.

    Args:
        problem: The problem.
        chunk: Its only chunk.
        o: O that delta is taken of, `[B, Hq, Sq, Dv]`.
        lse: `[B, Hq, Sq]`, natural.
        do: `[B, Hq, Sq, Dv]`.
        dlse: `[B, Hq, Sq]`, or None.
    """
    P = _weights(problem, chunk, lse)
    g = torch.where(chunk.empty, 0.0, problem.cut(do, chunk.rows))
    g = torch.where(finite_rows(g), g, 0.0)
    delta = (g * torch.where(chunk.empty, 0.0, problem.cut(o, chunk.rows))).sum(-1, keepdim=True)
    if dlse is not None:
        delta = delta - torch.where(chunk.empty, 0.0, problem.cut(dlse.unsqueeze(-1), chunk.rows))
    dp, kept = g @ chunk.v.mT, P
    if chunk.kept is not None:
        dp, kept = dp * chunk.kept * chunk.factor, P * chunk.kept * chunk.factor
    ds = P * (dp - delta)
    if chunk.parts is not None and chunk.parts.gain is not None:
        ds = ds * chunk.parts.gain
    ds = chunk.mask(ds) * problem.scale
    # dS is cast with the scale in it, or the cast is scaled after the dot: its subnormal error then is, too.
    scaled = 1.0 if problem.form.scale_ds == "before" else abs(problem.scale)
    keys, rows = problem.shape.Sk, problem.shape.Sq
    return {
        "dq": _sum(problem, ds, chunk.k, keys, scaled, cast=scaled),
        "dk": _sum(problem, ds.mT, chunk.q, rows, scaled, cast=scaled),
        "dv": _sum(problem, kept.mT, g, rows),
    }


def _weights(problem: BoundInputs, chunk: Chunk, lse: Tensor) -> Tensor:
    """P `[G, M, N]`."""
    L = problem.cut(lse.unsqueeze(-1), chunk.rows)
    L = torch.where(chunk.empty | ~torch.isfinite(L), 0.0, L)
    return chunk.mask(exp_((chunk.S - L).clamp_(max=_CLAMP)))


def _sum(
    problem: BoundInputs,
    weights: Tensor,
    operand: Tensor,
    length: int,
    scale: float = 1.0,
    *,
    cast: float | None = None,
) -> WeightedSum:
    x = FORMATS[problem.dtype]
    return WeightedSum(weights=weights, operand=operand, length=length, unit=x.u, floor=x.eta * scale, cast=cast)
