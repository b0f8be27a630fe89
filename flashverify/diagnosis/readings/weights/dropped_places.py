"""Models of dropout that acts otherwise at some pairs."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.masks.rules import Rule, rules
from flashverify.diagnosis.readings.weights.draws import other_draws
from flashverify.diagnosis.readings.weights.models import DECLARED, Model, kept_factor
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

    Factor = Callable[[Effect], Tensor | None]

__all__ = ["dropped_places"]

_RULES = 12
_DRAWN = 2000
"""Pairs of all heads up to which other draws are tried at places."""


def dropped_places(effect: Effect) -> Iterator[Model]:
    """Dropout that leaves out some pairs, or has other draws there."""
    keep = kept_factor(effect).expand_as(effect.weights) > 0
    full = (effect.logits - effect.scene.truth.exact_lse.unsqueeze(-1)).exp()
    readable = effect.visible & effect.asked & (full > 16 * effect.floor)
    entered = readable & ~keep & (effect.weights > effect.floor)
    lost = readable & keep & (effect.weights <= effect.floor / 4)
    p = effect.scene.case.dropout
    if not bool(entered.any()):
        return
    if not bool(lost.any()):
        for rule in islice(rules(effect.scene, entered, readable & ~keep, "", hidden=False), _RULES):
            for words, factor in (("though they are divided by 1 - p", 1.0 / (1.0 - p)), ("nor divided by 1 - p", 1.0)):
                yield _model(f"are not dropped, {words}", lambda e, f=factor: torch.full_like(e.weights, f), rule)  # type: ignore[misc]
    wrong = entered | lost
    if work(effect.scene.case) > _DRAWN:
        return
    for words, of in other_draws():
        other = of(effect)
        if other is None:
            continue
        apart = readable & ((other.expand_as(keep) > 0) != keep)
        if not bool((wrong & ~apart).any()):
            for rule in islice(rules(effect.scene, wrong, apart, "", hidden=False), 3):
                yield _model(f"have {words}", of, rule)


def _model(words: str, of: Factor, rule: Rule) -> Model:
    """The declared weights, with the draws and the factor that `of` gives where `rule` says."""

    def kept(effect: Effect, of: Factor) -> Tensor | None:
        other = of(effect)
        if other is None:
            return None
        declared = kept_factor(effect).expand_as(effect.weights)
        return torch.where(rule.where(effect.scene), other.expand_as(declared), declared)

    drawn = rule.everything and words.startswith("have ")
    said = f"dropout has {words.removeprefix('have ')}" if drawn else f"the weights of {rule.words} {words}"
    return Model(said, DECLARED.logits, partial(kept, of=of))
