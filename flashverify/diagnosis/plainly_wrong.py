"""Errors of gradients that are too large for any rounding: then no model of one is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.backward_steps import gradients_of, steps_of
from flashverify.outputs import BACKWARD

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["plainly_wrong"]

_SHARE, _LOGITS = 0.1, 12.0
"""Of the sum of magnitudes that an element is made of, and logits up to which rounding these to bf16 makes a weight no more than a twentieth wrong."""
_USUAL = (1e-3, 1e4)
"""Sums of magnitudes that no format of 16 bits loses or passes."""
_MOST = 6
"""Other cases that are looked at."""
_SOME = 0.1
"""Share of the wrong elements that must be so far off."""


def plainly_wrong(trials: Trials, scene: Scene) -> bool:
    """Whether gradients alone are wrong in a run, and one of them by much of what it is summed from, there or on another case of the same dtype."""
    if not scene.failures or not set(scene.failures) <= set(BACKWARD):
        return False
    others = [each for each in trials.scenes.values() if each.failures and each.case.dtype == scene.case.dtype]
    return any(_plain(each) for each in (scene, *others[:_MOST]))


def _plain(scene: Scene) -> bool:
    if not scene.failures or not set(scene.failures) <= set(BACKWARD) or scene.inputs.do is None:
        return False
    if scene.o is None or scene.lse is None:
        return False
    s = steps_of(scene.inputs, scene.o, scene.lse)
    if not s.z.numel() or float(torch.maximum(s.z.abs().where(s.see, 0.0).amax(), s.lse.abs().amax())) > _LOGITS:
        return False
    sizes = {name: part.size for name, part in gradients_of(scene, scene.inputs, s).items()}
    return any(_far(scene, name, sizes[name]) for name in scene.failures if name in sizes)


def _far(scene: Scene, name: str, size: torch.Tensor) -> bool:
    wrong, got, right = scene.failures[name], scene.outputs[name], scene.right[name].value
    if size.shape != got.shape or not bool(torch.isfinite(got[wrong]).all()):
        return False
    low, high = _USUAL
    told = wrong & (size > low) & (size < high)
    far = told & ((got - right).abs() > _SHARE * size)
    return int(far.sum()) > _SOME * int(wrong.sum())
