"""Terms of pieces of the keys that are merged one after the other: the factors of what there is and of a further piece."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.weights.models import pieces_of
from flashverify.diagnosis.readings.weights.term import Term

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

    Factors = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """Of the LSE of what there is, of a further piece and of both the logarithms of the factors of the two."""

__all__ = ["merge_terms"]

_log_share = torch.nn.functional.logsigmoid


def _of_share(gap: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Factors:
    """The share of the piece is the logistic function of `gap`; what there is keeps the rest."""
    return lambda old, new, both: (_log_share(-gap(old, new, both)), _log_share(gap(old, new, both)))


_FACTORS: tuple[tuple[str, Factors], ...] = (
    (
        "the share of a further piece is the logistic function of its LSE less that of all pieces so far with it, not of those before it",
        _of_share(lambda old, new, both: new - both),
    ),
    (
        "the share of a further piece is the logistic function of the LSE of the pieces so far less that of all with it",
        _of_share(lambda old, new, both: old - both),
    ),
    (
        "the shares of a further piece and of those so far are exchanged",
        _of_share(lambda old, new, both: old - new),
    ),
    (
        "the share of a further piece is 1 / (1 + 2^-gap), the gap of the natural LSE from that of the pieces so far",
        _of_share(lambda old, new, both: math.log(2) * (new - old)),
    ),
    (
        "the share of a further piece is 1 / (1 + exp(-gap)), the gap of the LSE in base 2",
        _of_share(lambda old, new, both: (new - old) / math.log(2)),
    ),
    (
        "a further piece and those so far count alike, half each",
        _of_share(lambda old, new, both: 0.0 * new),
    ),
    (
        "a further piece is weighed by exp(its LSE - that of the pieces so far), those by exp(their LSE - that of all)",
        lambda old, new, both: (old - both, new - old),
    ),
    (
        "the pieces so far are weighed by exp(their LSE - that of a further piece), that by exp(its LSE - that of all)",
        lambda old, new, both: (old - new, new - both),
    ),
    (
        "the pieces so far are not rescaled when a further piece is added by its share",
        lambda old, new, both: (0.0 * old, new - both),
    ),
    (
        "a further piece is added with the weight 1, those so far are rescaled by their share",
        lambda old, new, both: (old - both, 0.0 * new),
    ),
    (
        "the larger of both pieces is taken alone, where one is merged into those so far",
        lambda old, new, both: (
            torch.where(new > old, -math.inf, 0.0),
            torch.where(new > old, 0.0, -math.inf),
        ),
    ),
)


def merge_terms() -> Iterator[Term]:
    """What the pieces of the keys weigh under wrong factors of a running merge."""
    for words, factors in _FACTORS:
        yield Term(words=words, kind="exchange", of=partial(_merged, factors=factors))


def _merged(effect: Effect, factors: Factors) -> Tensor | None:
    """By how much the logarithm of the weight of each key's piece is off; None where the logits tell no pieces."""
    piece = pieces_of(effect)
    if piece is None:
        return None
    z, count = effect.logits.masked_fill(~effect.visible, -math.inf), int(piece.max()) + 1
    parts = [z.masked_fill((piece != n)[:, None, None, :], -math.inf).logsumexp(-1) for n in range(count)]
    lse, weights = parts[0], [torch.zeros_like(parts[0])]
    for new in parts[1:]:
        both = torch.logaddexp(lse, new)
        some = torch.isfinite(lse) & torch.isfinite(new)  # a merge with a piece without keys changes nothing
        held, more = (
            torch.where(some, x, 0.0) for x in factors(*(torch.where(some, y, 0.0) for y in (lse, new, both)))
        )
        weights = [*(weight + held for weight in weights), more]
        lse = both
    off = torch.stack([w - part + lse for w, part in zip(weights, parts, strict=True)], -1)
    own = off.gather(-1, piece[:, None, None, :].expand(z.shape))
    return torch.where(own.isnan(), 0.0, own)
