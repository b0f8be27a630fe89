"""The LSE put to the question of `statistics`: do the errors of all rows follow one direction (docs/bounds.md, section 22)?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.checks.statistics.evidence import Errors, Tilt, leaning_tiles, number_of_tiles, surest_tilt, tilt_limit
from flashverify.numerics.weighted_sums import row_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.numerics import OutputBound
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.weighted_sums import WeightedSum
    from flashverify.truth import Truth

__all__ = ["lse_errors", "lse_terms", "lse_tilt"]


def lse_errors(
    truth: Truth, terms: WeightedSum, got: torch.Tensor, undefined: torch.Tensor | None, directed: OutputBound
) -> Errors:
    """Errors of the LSE, a group a row, weighed by their bounds: the spacing of numbers near 0 says nothing of the error of a logit.

    Args:
        truth: of the case.
        terms: P over the keys, as `lse_terms` gives it.
        got: `[B, Hq, Sq]`, as returned.
        undefined: elements that are not looked at, bool, broadcasts with `got`; or None.
        directed: what may share a direction, of the LSE.
    """
    value, bound = truth.forward()["lse"]
    usable = (
        ~bound.exempt & (bound.bound > 0) & torch.isfinite(bound.bound) & torch.isfinite(got) & torch.isfinite(value)
    )
    if undefined is not None:
        usable = usable & ~undefined

    def of(x: torch.Tensor) -> torch.Tensor:
        return truth.problem.cut(x.double().unsqueeze(-1), slice(0, truth.problem.shape.Sq))

    looked = (of(usable) > 0) & terms.various().unsqueeze(-1)
    size, error = of(bound.bound), of(got.double() - value)
    return Errors(
        value=torch.where(looked, of(value), 0.0),
        error=torch.where(looked, error, 0.0),
        directed=torch.where(looked, of(directed.bound), 0.0),
        weight=torch.where(looked, size**-2, 0.0),
    )


def lse_terms(truth: Truth, chunk: Chunk) -> WeightedSum:
    """P as a sum of ones: what the keys contribute to the sum of a row."""
    return row_weights(truth.problem, chunk, truth.exact_lse)


def lse_tilt(
    errors: Errors, terms: WeightedSum, chunk: Chunk, widths: Sequence[int], alpha: float
) -> tuple[Tilt, str, float]:
    """The steepest tilt, its direction in words, and the limit, which a right LSE passes with probability alpha at most.

    The directions are what an error common to all rows can follow: the mean logit where logits are scaled, the LSE itself, a constant where
    sums are scaled, and the weight of a tile of keys. A tile that cannot pass the limit is left out.
    """
    common = dict(_common(errors, terms, chunk))
    limit = tilt_limit(alpha, len(common) + number_of_tiles(terms, widths))
    tiles = (
        (f"the weight of keys {width * number} to {width * (number + 1) - 1}", share)
        for (width, number), share in leaning_tiles(errors, terms, widths, limit)
    )
    found = [(surest_tilt(errors, direction), words) for words, direction in (*common.items(), *tiles)]
    steepest, words = max(found, key=lambda each: each[0].score)
    return steepest, words, limit


def _common(errors: Errors, terms: WeightedSum, chunk: Chunk) -> Iterator[tuple[str, torch.Tensor]]:
    logits = torch.where(terms.weights > 0, chunk.S, 0.0)
    yield "the mean logit", (terms.weights * logits).sum(-1, keepdim=True)
    yield "the LSE", errors.value
    yield "a constant", torch.ones_like(errors.value)
