"""How an error depends on the number of keys, the head dim and the size of the logits."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from flashverify.case.changes import change
from flashverify.diagnosis.neighbours import resized

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["growth"]

_STEPS = (1, 4, 16)


def growth(trials: Trials, scene: Scene, name: str, share: float) -> list[str]:
    """Sentences on the error of output `name`, one for each size that it depends on in one direction.

    Args:
        trials: runs the subject.
        scene: a failing run.
        name: of the output.
        share: of the time of `trials` that may be used.
    """
    case = scene.case
    base = abs(case.softmax_scale)
    ladders: dict[str, list[Case | None]] = {
        "the number of keys": [resized(case, case.seq_q, max(case.seq_k, 4) * step) for step in _STEPS],
        "the head dim": [change(case, dim_qk=16 * step, dim_v=16 * step) for step in (1, 4, 8)],
        "the size of the logits": [change(case, scale=base * step) for step in _STEPS],
    }
    found = []
    for what, ladder in ladders.items():
        errors = [_error(trials, each, name, share) for each in ladder]
        sizes = [error for error in errors if error is not None]
        if len(sizes) < len(ladder):
            continue
        if all(a < 0.5 * b for a, b in pairwise(sizes)):
            found.append(f"The error grows with {what}")
        elif all(b < 0.5 * a for a, b in pairwise(sizes)):
            found.append(f"The error falls with {what}")
    return found


def _error(trials: Trials, case: Case | None, name: str, share: float) -> float | None:
    """The mean error of the output beside its mean size, among the finite elements; None where it was not run or is right."""
    if case is None or not trials.left(share):
        return None
    scene = trials.scene(case)
    if scene is None or name not in scene.failures:
        return None
    value = scene.right[name].value
    error = (scene.outputs[name] - value).abs()
    finite = torch.isfinite(error) & torch.isfinite(value)
    size = float(value[finite].abs().mean()) if bool(finite.any()) else 0.0
    return float(error[finite].mean()) / size if size and math.isfinite(size) else None
