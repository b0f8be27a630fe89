"""The LSE put to the question of `statistics`: do the errors of all rows follow one direction (docs/bounds.md, section 22)?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.checks.statistics.evidence import Errors, Tilt, surest_tilt
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


def lse_tilt(errors: Errors, terms: WeightedSum, chunk: Chunk, widths: Sequence[int]) -> tuple[Tilt, str, int]:
    """The steepest tilt, its direction in words, and the number of directions tried.

    The directions are what an error common to all rows can follow: the mean logit where logits are scaled, the LSE itself, a constant where
    sums are scaled, and the weight of a tile of keys.
    """
    found = [(surest_tilt(errors, direction), words) for direction, words in _directions(errors, terms, chunk, widths)]
    steepest, words = max(found, key=lambda each: each[0].score)
    return steepest, words, len(found)


def _directions(
    errors: Errors, terms: WeightedSum, chunk: Chunk, widths: Sequence[int]
) -> Iterator[tuple[torch.Tensor, str]]:
    logits = torch.where(terms.weights > 0, chunk.S, 0.0)
    yield (terms.weights * logits).sum(-1, keepdim=True), "the mean logit"
    yield errors.value, "the LSE"
    yield torch.ones_like(errors.value), "a constant"
    for width in widths:
        shares = list(terms.shares(width))
        for number, share in enumerate(shares if len(shares) > 1 else ()):
            yield share, f"the weight of keys {width * number} to {width * (number + 1) - 1}"
