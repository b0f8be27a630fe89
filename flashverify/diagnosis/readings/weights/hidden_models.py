"""Models in which hidden pairs enter all the same."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.masks.rules import Rule, rules
from flashverify.diagnosis.readings.weights.models import Deviation, Model, kept_factor, tolerance_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["hidden_models"]


_RULES = 25


_CLOSE = 1e-3
"""Relative distance at which a number is a named coefficient."""


def hidden_models(effect: Effect, deviation: Deviation) -> Iterator[Model]:
    """Hidden pairs that enter all the same."""
    hidden, logit = deviation.hidden, deviation.logit[deviation.hidden]
    tolerance = 4 * tolerance_of(effect)[hidden]
    found: list[tuple[str, Callable[[Effect], Tensor]]] = []
    own = effect.logits[hidden]
    if bool(((logit - own).abs() <= tolerance).all()):
        found.append(("with their own logits", lambda e: e.logits))
    difference = float((logit - own).median())
    if abs(difference) > _CLOSE and bool(((logit - own - difference).abs() <= tolerance).all()):
        found.append((f"with their own logits {difference:+.4g}", lambda e: e.logits + difference))
    number = float(logit.median())
    if bool(((logit - number).abs() <= tolerance).all()):
        found.append((f"with the logit {number:.4g}", lambda e: torch.full_like(e.logits, number)))
    top = effect.logits.masked_fill(~effect.visible, -math.inf).amax(-1, keepdim=True).expand_as(hidden)[hidden]
    if bool(((logit - top).abs() <= tolerance).all()):
        found.append(("with the largest logit of the row", _largest))
    for rule in islice(rules(effect.scene, hidden, effect.asked.expand_as(hidden), "", hidden=True), _RULES):
        for words, of in found:
            yield _hidden_model(f"{rule.words} enter {words}", of, rule)


def _largest(effect: Effect) -> Tensor:
    z = effect.logits.masked_fill(~effect.visible, -math.inf)
    return z.amax(-1, keepdim=True).expand_as(z)


def _hidden_model(words: str, of: Callable[[Effect], Tensor], rule: Rule) -> Model:
    def logits(effect: Effect) -> Tensor:
        declared = effect.logits.masked_fill(~effect.visible, -math.inf)
        return torch.where(rule.where(effect.scene) & ~effect.visible, of(effect), declared)

    return Model(words, logits, kept_factor)
