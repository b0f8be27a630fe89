"""Whether calls of one problem return other values each time, and whether other values of the same shapes fail as well."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from flashverify.case.memory.materialize import materialize
from flashverify.diagnosis.state.calling import returned

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials

__all__ = ["differing_calls", "other_seeds"]

_CALLS, _CASES = 3, 3
"""Calls of each problem, and failing cases that are asked."""
_SEEDS = tuple(range(301, 309))
"""Numbers that are added to the seed of a failing case."""
_FEWEST = 6
"""Other seeds that must have been run for something to be said of them."""


def differing_calls(trials: Trials, share: float) -> str:
    """That equal calls return values farther apart than bounds allow, on every failing case that is asked; empty where they do not."""
    failing = [scene for scene in trials.scenes.values() if scene.failures][:_CASES]
    if len(failing) < _CASES:
        return ""
    changing: set[str] | None = None
    for scene in failing:
        if not trials.within(share):
            return ""
        problem, _ = materialize(scene.case, trials.subject.device())
        calls = [returned(trials.subject, problem) for _ in range(_CALLS)]
        found = {name for one, two in pairwise(calls) for name in one if name in two and _apart(scene, name, one, two)}
        changing = found if changing is None else changing & found
        if not changing:
            return ""
    names = [name for name in failing[0].outputs if name in (changing or ())]
    return (
        f"Calls of one problem return other values of {' and '.join(names)} each time, farther apart than their bounds: "
        "something that is no part of the problem, such as a count of calls, chance or a race, has a say"
    )


def _apart(scene: Scene, name: str, one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    if name not in scene.right:
        return False
    a, b = (each[name].detach().cpu().double() for each in (one, two))
    return bool(((a - b).abs() > 2 * scene.right[name].total)[torch.isfinite(a) & torch.isfinite(b)].any())


def other_seeds(trials: Trials, case: Case, share: float) -> str:
    """On how many of the cases that differ from a failing one in their seed alone it shows; empty where on all, or where too few were run."""
    told = []
    for more in _SEEDS:
        other = replace(case, values=replace(case.values, seed=case.values.seed + more, edits=()))
        if not trials.known(other) and not trials.left(share):
            break
        scene = trials.scene(other)
        if scene is not None:
            told.append(bool(scene.failures))
    if len(told) < _FEWEST or all(told):
        return ""
    return f"With other seeds alone the same case fails {sum(told)} times in {len(told)}: it depends on the values"
