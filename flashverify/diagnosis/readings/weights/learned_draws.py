"""Dropout by the draws of another key or row, by a function that is learned from which pairs one case keeps."""

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
"""Pairs of a key, or of a row, that tell whose draws it has."""


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
    for what, letter, axis in (("key", "j", 3), ("row", "i", 2)):
        found, told = _matches(*(x.movedim(axis, -1).flatten(0, -2) for x in (kept, drawn, read)))
        for form in forms_within(found, told >= _FEWEST, _FORMS):
            words = f"the draws of {what} {form.words.format(*[letter] * 2)}"
            yield words, partial(draws_at, of=form.of, what=what)


def _matches(kept: Tensor, drawn: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the second number's draws may be those of the first one, `[numbers, numbers]`, and how many pairs tell, of `[pairs, numbers]`."""
    x, d, r = (each.to(torch.float32) for each in (kept, drawn, read))
    against = (r * x).T @ (1 - d) + (r * (1 - x)).T @ d
    return against == 0, read.sum(0)
