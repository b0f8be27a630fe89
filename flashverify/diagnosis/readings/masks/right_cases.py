"""Cases that the subject computes rightly: what would make them wrong is not what it does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import modified, products
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.masks.ends import visible_of

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["is_without", "right_scenes", "shows"]

_PLAIN = ("normal", "ascending", "integers")
_HEAVY = 0.02
"""Weight of a pair from which on O tells whether it is there."""
_MOST = 24


def is_without(scene: Scene, pairs: Tensor) -> bool:
    """Whether O is what it is if `pairs`, bool, broadcast to `[B, Hq, Sq, Sk]`, are missing."""
    missing = Alternative(inputs=replace(scene.inputs, visible=visible_of(scene) & ~pairs))
    return scene.agrees(missing, frozenset({"o"}))


def right_scenes(trials: Trials) -> list[Scene]:
    """Cases with plain values on which nothing fails, the first that were run."""
    found = [s for s in trials.scenes.values() if not s.failures and s.case.values.regime in _PLAIN and "o" in s.right]
    return found[:_MOST]


def shows(scene: Scene, pairs: Tensor) -> bool:
    """Whether O would be wrong on a case of `right_scenes` if `pairs`, bool, broadcast to `[B, Hq, Sq, Sk]`, entered that are hidden, or were missing."""
    inputs = scene.inputs
    if not bool(pairs.any()):
        return False
    z = modified(products(inputs), inputs, inputs.biases)
    weights = (z - scene.truth.exact_lse.unsqueeze(-1)).exp().nan_to_num(0.0, 0.0, 0.0)
    value = inputs.v.abs().amax(-1).repeat_interleave(scene.group, 1).unsqueeze(-2)
    asked = torch.isfinite(scene.truth.exact_lse).unsqueeze(-1) & (value > 0)
    if (free := scene.free.get("o")) is not None:
        asked = asked & ~free.any(-1, keepdim=True)
    return bool((pairs & asked & (weights > _HEAVY)).any())
