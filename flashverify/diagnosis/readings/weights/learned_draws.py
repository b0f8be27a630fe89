"""Dropout by the draws of another key, row or query head, by a function that is learned from which pairs one case keeps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.index_forms import forms_within
from flashverify.diagnosis.readings.weights.draws import draws_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["learned_draws"]

_FORMS = 8
"""Functions that fit one case."""
_FEWEST = 12
"""Pairs of a key, a row or a head that tell whose draws it has."""


def learned_draws(effect: Effect) -> Iterator[tuple[str, Callable[[Effect], Tensor | None]]]:
    """Draws in words, and what they multiply the weights by, `[B, Hq, Sq, Sk]`; none of packed sequences."""
    scene = effect.scene
    keep = scene.inputs.keep
    if keep is None or scene.case.mask.packed is not None:
        return
    share = (effect.logits - scene.truth.exact_lse.unsqueeze(-1)).exp()
    read = (effect.visible & effect.asked & (share > 16 * effect.floor)).expand_as(effect.weights)
    kept = effect.weights > effect.floor / 4
    drawn = keep.bool().expand_as(kept)
    for what, letter, axis in (("key", "j", 3), ("row", "i", 2), ("head", "h", 1)):
        found, told = _matches(*(x.movedim(axis, -1).flatten(0, -2) for x in (kept, drawn, read)))
        for form in forms_within(found, told >= _FEWEST, _FORMS):
            words = f"the draws of {what} {form.words.format(*[letter] * 2)}"
            yield words, partial(draws_at, of=form.of, what=what)
    found, told = _matches(*(x.flatten(0, 1).flatten(1).T for x in (kept, drawn, read)))
    own = torch.arange(len(found))
    for form in forms_within(found, told >= _FEWEST, _FORMS) if kept.shape[0] > 1 else ():
        if torch.equal(form.of(own) // kept.shape[1], own // kept.shape[1]):
            continue  # it is one of the heads of a sequence
        words = f"the draws of {form.words.format(*['s'] * 2)} for s = sequence * heads + head"
        yield words, partial(_of_streams, of=form.of)


def _of_streams(effect: Effect, of: Callable[[Tensor], Tensor]) -> Tensor | None:
    """What draws of other sequences and heads multiply the weights by; None where a number leads out of them."""
    inputs = effect.scene.inputs
    if inputs.keep is None or effect.scene.case.mask.packed is not None:
        return None
    keep = inputs.keep.double().expand_as(effect.weights)
    to = of(torch.arange(keep.shape[0] * keep.shape[1]))
    if int(to.min()) < 0 or int(to.max()) >= len(to):
        return None
    drawn: Tensor = keep.flatten(0, 1)[to].view(keep.shape)
    return drawn / (1.0 - inputs.dropout)


def _matches(kept: Tensor, drawn: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the second number's draws may be those of the first one, `[numbers, numbers]`, and how many pairs tell, of `[pairs, numbers]`."""
    x, d, r = (each.to(torch.float32) for each in (kept, drawn, read))
    against = (r * x).T @ (1 - d) + (r * (1 - x)).T @ d
    return against == 0, read.sum(0)
