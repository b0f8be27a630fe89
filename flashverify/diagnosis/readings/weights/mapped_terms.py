"""Biases that are taken of another distance or head, by a function whose constant is learned from one case."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from flashverify.diagnosis.readings.index_forms import constants, index_forms
from flashverify.diagnosis.readings.weights.models import deviation_of, tolerance_of
from flashverify.diagnosis.readings.weights.term import BIASES, Term, bias_of, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

    Of = Callable[[Tensor], Tensor]
    Value = Callable[[Effect], Tensor | None]

__all__ = ["mapped_terms"]

_ROWS = 5
"""Rows of a case that a function is tried on before it is tried on all."""
_TERMS = 12
"""Functions that fit one case."""
_NEAR = 4
"""How far from the reach of a table a distance may lie to be said relative to it."""


class _Row(NamedTuple):
    """Rows of a case: index of each, with what its logits are off and how far that may be wrong, `[rows, Sk]`; which pairs were read."""

    at: tuple[Tensor, ...]
    off: Tensor
    tolerance: Tensor
    read: Tensor


def mapped_terms(effect: Effect) -> Iterator[Term]:
    """What the biases of a case are under a function of the distance or of the head that its deviation allows; the simplest first."""
    deviation = deviation_of(effect)
    if not bool(deviation.wrong.any()) or bool(deviation.hidden.any()):
        return
    sample = _sample(effect)
    for name, words in BIASES:
        if getattr(effect.scene.problem, name) is None:
            continue
        count = 0
        for sentence, value in _values(effect, name, words):
            if _fits(effect, sample, value):
                yield Term(words=sentence, kind="exchange", of=value)
                count += 1
                if count == _TERMS:
                    break


def _values(effect: Effect, name: str, words: str) -> Iterator[tuple[str, Value]]:
    """Sentences, and what is added to the declared logits."""
    case = effect.scene.case
    for form in index_forms(case.heads_q - 1):
        has = "has the slope" if name == "slopes" else "is that"
        yield f"{words} {has} of query head {form.words.format(*['h'] * 2)}", partial(_of_heads, of=form.of, name=name)
    if name == "bias":
        return
    farthest = int(signed(effect).abs().max())
    for form in index_forms(farthest):
        yield f"{words} takes the distance d for {form.words.format(*['d'] * 2)}", partial(_far, of=form.of, name=name)
    if name == "relative_bias":
        for by in range(-_NEAR, _NEAR + 1):
            end = "the reach of its table" + (f" {by:+d}" if by else "")
            yield f"{words} is 0 for distances beyond {end}", partial(_none_beyond_reach, by=by)
    for c in constants(farthest):
        yield f"{words} is 0 for distances beyond {c}", partial(_none, beyond=c, name=name)


def _fits(effect: Effect, sample: _Row, value: Value) -> bool:
    """Whether the logits of the sampled rows are off by what is added, up to a number of each row."""
    more = value(effect)
    if more is None:
        return False
    b, h, i = sample.at
    off, t = sample.off, more.expand_as(effect.weights)[b, h, i]
    count = sample.read.sum(-1, keepdim=True).clamp(min=1)
    centred = [
        torch.where(sample.read, x - torch.where(sample.read, x, 0.0).sum(-1, keepdim=True) / count, 0.0)
        for x in (off, t)
    ]
    near = (centred[0] - centred[1]).abs() <= 4 * sample.tolerance + 1e-4 * centred[1].abs()
    return bool((near | ~sample.read).all()) and bool((centred[1] != 0).any())


def _sample(effect: Effect) -> _Row:
    """The rows with most pairs that were read, wrong ones among them, of several heads."""
    deviation, memo = deviation_of(effect), effect.scene.memo
    if "sampled rows" not in memo:
        read = deviation.read & torch.isfinite(deviation.off)
        wrong = deviation.wrong & read
        # a function shows where a row has pairs of both kinds
        score = read.sum(-1) + read.shape[-1] * torch.minimum(wrong.sum(-1), (read & ~wrong).sum(-1))
        order = score.flatten().argsort(descending=True)[:_ROWS]
        batch, head, row = (torch.from_numpy(each) for each in np.unravel_index(order.numpy(), score.shape))
        at = (batch, head, row)
        tolerance = tolerance_of(effect).expand_as(read)
        memo["sampled rows"] = _Row(at, deviation.off[at], tolerance[at], read[at])
    found: _Row = memo["sampled rows"]
    return found


def _of_heads(effect: Effect, of: Of, name: str) -> Tensor | None:
    """A bias of other query heads less the declared one; None where a number leads out of them."""
    old, count = bias_of(effect, name), effect.scene.case.heads_q
    to = of(torch.arange(count))
    if old is None or int(to.min()) < 0 or int(to.max()) >= count:
        return None
    old = old.expand(-1, count, -1, -1)
    return old.index_select(1, to) - old


def _far(effect: Effect, of: Of, name: str) -> Tensor | None:
    """What a bias by distance is with another one less what it is declared to be; a distance keeps its sign."""
    old, d = bias_of(effect, name), signed(effect)
    if old is None:
        return None
    return _at(effect, d.sign() * of(d.abs().long()).double(), name) - old


def _none(effect: Effect, beyond: int, name: str) -> Tensor | None:
    old = bias_of(effect, name)
    return None if old is None else torch.where(signed(effect).abs() > beyond, -old, 0.0)


def _none_beyond_reach(effect: Effect, by: int) -> Tensor | None:
    buckets = effect.scene.problem.distance_buckets
    return None if buckets is None else _none(effect, len(buckets) // 2 + by, "relative_bias")


def _at(effect: Effect, distance: Tensor, name: str) -> Tensor:
    """ALiBi or the relative bias of distances `[B, 1, Sq, Sk]`."""
    problem = effect.scene.problem
    if name == "slopes":
        assert problem.slopes is not None
        return -problem.slopes.double().view(1, -1, 1, 1) * distance.abs()
    assert problem.relative_bias is not None
    assert problem.distance_buckets is not None
    buckets = problem.distance_buckets.long()
    reach = len(buckets) // 2
    bucket = buckets[distance.long().clamp(-reach, reach)[:, 0] + reach]
    return problem.relative_bias.double()[:, bucket].transpose(0, 1)
