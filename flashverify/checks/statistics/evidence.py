"""What the errors of all elements of a 16-bit output say together (docs/bounds.md, section 22)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.formats import Format
    from flashverify.numerics.weighted_sums import WeightedSum

__all__ = ["Errors", "Tilt", "leaning_tiles", "number_of_tiles", "spread", "steepest_tilt", "tilt", "tilt_limit"]

_SLACK = 1e-6
"""What the order of a sum in float64 changes of a score, and more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Errors:
    """Errors of one output in groups that share a row or a key, float64 `[G, R, C]`; a group is `[C]`.

    Attributes:
        value: exact values.
        error: of the output, 0 where `weight` is.
        directed: what may share a direction, an upper bound of its magnitude; with `h^2 / |value|`, because values between two numbers of
            the format lie closer to the smaller one a little more often.
        weight: `1 / h^2` with h half the spacing of the format at the value, 0 for elements that are not looked at.
    """

    value: torch.Tensor
    error: torch.Tensor
    directed: torch.Tensor
    weight: torch.Tensor

    @property
    def groups(self) -> int:
        """Groups with an element that is looked at."""
        return int((self.weight > 0).any(-1).sum())

    @classmethod
    def of(
        cls, got: torch.Tensor, value: torch.Tensor, directed: torch.Tensor, usable: torch.Tensor, out: Format
    ) -> Errors:
        """Errors of an output; all arguments `[G, R, C]`, float64, `usable` 1 or 0, `out` the output's format."""
        size = value.abs()
        half = torch.exp2(torch.floor(torch.log2(size.clamp(min=out.min_normal)))) * out.u
        looked = (usable > 0) & (size >= out.min_normal) & torch.isfinite(got) & (directed <= half)
        return cls(
            value=value,
            error=torch.where(looked, got - value, 0.0),
            directed=torch.where(looked, directed + half.square() / size.clamp(min=out.min_normal), 0.0),
            weight=torch.where(looked, half**-2, 0.0),
        )


@dataclass(frozen=True, slots=True)
class Tilt:
    """How far errors lean along a direction.

    Attributes:
        score: the lean beyond what may share a direction, over the square root of the sum of squares of the groups' leans.
        slope: error over direction, the fraction of it that the output has too much.
        groups: that took part.
        tile: width and number of the tile that is the direction; None for the whole value.
    """

    score: float
    slope: float
    groups: int
    tile: tuple[int, int] | None = None


def tilt_limit(alpha: float, questions: int) -> float:
    """The score that errors without a direction of their own exceed with probability alpha at most, over all questions."""
    return math.sqrt(2 * math.log(2 * questions / alpha))


def tilt(errors: Errors, direction: torch.Tensor, tile: tuple[int, int] | None = None) -> Tilt:
    """How far the errors lean along a direction `[G, R, C]`, the share of a tile where `tile` names one."""
    along = errors.weight * direction
    lean = (along * errors.error).sum(-1)
    room = (along.abs() * errors.directed).sum(-1)
    norm, total, shared, size, groups = _read(
        lean.square().sum().sqrt(), lean.sum(), room.sum(), (along * direction).sum(), (lean != 0).sum()
    )
    score = max(abs(total) - shared, 0.0) / norm if norm > 0 else 0.0
    return Tilt(score, total / size if size > 0 else 0.0, int(groups), tile)


def _read(*scalars: torch.Tensor) -> list[float]:
    """Their values, with one wait for a GPU."""
    found: list[float] = torch.stack([x.double() for x in scalars]).tolist()
    return found


def surest_tilt(errors: Errors, direction: torch.Tensor) -> Tilt:
    """`tilt` with the least score of a lean whose directed parts are any within their rooms (docs/bounds.md, section 22)."""
    along = errors.weight * direction
    room = (along.abs() * errors.directed).sum(-1).flatten()
    lean = (along * errors.error).sum(-1).flatten()
    shift, size, groups, reach = _read(lean.sum(), (along * direction).sum(), (lean != 0).sum(), room.sum())
    slope = shift / max(size, 1e-300)
    if abs(shift) <= reach:  # within their rooms the errors may lean the other way
        return Tilt(0.0, slope, int(groups))
    lean, order = (lean * math.copysign(1.0, slope)).sort(descending=True)
    room = room[order]
    first, square = lean - room, (lean - room).square()
    raised, squared = 2 * room, 4 * lean * room
    total = torch.cat([first.sum().view(1), first.sum() + raised.cumsum(0)])
    norm = torch.cat([square.sum().view(1), square.sum() + squared.cumsum(0)])
    if float(total[0]) <= 0:
        return Tilt(0.0, slope, int(groups))
    # Between two neighbours total / sqrt(norm) has its least value where the derivative is 0, or at an end.
    a, b = raised, squared
    product = torch.where(a * b == 0, 1.0, a * b)
    inside = torch.where(a * b == 0, 0.0, (total[:-1] * b - 2 * a * norm[:-1]) / product).clamp(0.0, 1.0)
    candidates = torch.cat(
        [total / norm.sqrt(), (total[:-1] + inside * a) / (norm[:-1] + inside * b).clamp(min=1e-300).sqrt()]
    )
    return Tilt(float(candidates.min()), slope, int(groups))


def steepest_tilt(
    errors: Errors, terms: WeightedSum, widths: Sequence[int], alpha: float
) -> tuple[Tilt, Tilt | None, float]:
    """The tilt along the value; the steepest one along the share of a tile, None where no tile passes the limit; and the limit.

    Args:
        errors: of the output.
        terms: what the output is a sum of.
        widths: of tiles.
        alpha: probability that a right output passes the limit in one direction or another.
    """
    limit = tilt_limit(alpha, 1 + number_of_tiles(terms, widths))
    found = [tilt(errors, share, tile) for tile, share in leaning_tiles(errors, terms, widths, limit)]
    steepest = max(found, key=lambda each: each.score, default=None)
    passes = steepest is not None and steepest.score > limit
    return tilt(errors, errors.value), steepest if passes else None, limit


def number_of_tiles(terms: WeightedSum, widths: Sequence[int]) -> int:
    """Tiles of all widths that cut the sum into several."""
    return sum(count for count in map(terms.tiles, widths) if count > 1)


def leaning_tiles(
    errors: Errors, terms: WeightedSum, widths: Sequence[int], limit: float
) -> Iterator[tuple[tuple[int, int], torch.Tensor]]:
    """Width, number and share `[G, R, C]` of every tile whose score may pass the limit.

    What may share a direction only lowers a score. Without it the lean of a group along a share is a sum over the terms of the tile. The
    tiles of all widths are asked with one wait for a GPU.
    """
    counts = {width: count for width in widths if (count := terms.tiles(width)) > 1}
    if not counts:
        return
    leans, place = terms.along(errors.weight * errors.error), terms.place
    groups = leans.new_zeros(*leans.shape[:2], sum(counts.values()))
    for width, part in zip(counts, torch.split(groups, list(counts.values()), -1), strict=True):
        part.index_add_(-1, place // width, leans)
    score = groups.sum((0, 1)).abs() / groups.square().sum((0, 1)).sqrt()
    tiles = [(width, number) for width, count in counts.items() for number in range(count)]
    for tile, leaning in zip(tiles, (score > limit * (1 - _SLACK)).tolist(), strict=True):
        if leaning:
            yield tile, terms.share(*tile)


def spread(errors: Errors, variance: torch.Tensor) -> tuple[float, float, int]:
    """Mean over the groups of error^2 / variance, its standard error, and the number of groups.

    Args:
        errors: of the output.
        variance: `[G, R, C]`, what roundings to nearest give at most, the output's own not included.
    """
    usable = errors.weight > 0
    most = variance + torch.where(usable, 1 / errors.weight, 0.0) / 3 + errors.directed.square()
    shares = torch.where(usable, errors.error.square() / most.clamp(min=1e-300), 0.0)
    count = usable.sum(-1)
    groups = (shares.sum(-1) / count.clamp(min=1))[count > 0]
    if groups.numel() < 2:
        return 0.0, math.inf, int(groups.numel())
    mean, deviation = _read(groups.mean(), groups.std() / math.sqrt(groups.numel()))
    return mean, deviation, int(groups.numel())
