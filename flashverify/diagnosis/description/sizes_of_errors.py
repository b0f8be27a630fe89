"""How large the errors are beside the values and beside the bounds, or that they are no numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene

__all__ = ["size_of_errors"]

_FEWEST = 3
"""Failing cases on which an output must be wrong."""


def size_of_errors(failing: list[Scene], name: str) -> list[str]:
    """One sentence on the errors of output `name` on all failing cases; none where there are too few of these.

    The size of an error is its median over the wrong elements of a case, that of the values the root of their mean square.
    """
    scenes = [scene for scene in failing if name in scene.failures]
    if len(scenes) < _FEWEST:
        return []
    found = [_of(scene, name) for scene in scenes]
    lost = [share for share, _, _ in found]
    if all(share == 1.0 for share in lost):
        return [f"Every wrong element of {name} is NaN or infinite"]
    if any(lost):
        return []
    parts, times = sorted(part for _, part, _ in found), sorted(ratio for _, _, ratio in found)
    if not all(map(_told, (*parts, *times))):
        return []
    sizes = f"{_between(parts[0], parts[-1])} of its size, {_between(times[0], times[-1])} times the bound"
    return [f"The errors of {name} are {sizes}"]


def _of(scene: Scene, name: str) -> tuple[float, float, float]:
    """The share of the wrong elements that is not finite; the median error beside the size of the values, and beside the bound."""
    wrong, right = scene.failures[name], scene.right[name]
    got, value, total = scene.outputs[name][wrong], right.value[wrong], right.total[wrong]
    finite = torch.isfinite(got) & torch.isfinite(value)
    lost = 1.0 - float(finite.double().mean())
    if not bool(finite.any()):
        return lost, 0.0, 0.0
    error = (got - value).abs()[finite]
    values = right.value[torch.isfinite(right.value)]
    size = float(values.square().mean().sqrt())
    middle = float(error.median())
    return lost, middle / size if size else float("inf"), float((error / total[finite]).median())


def _told(number: float) -> bool:
    return 0 < number < float("inf")


def _between(low: float, high: float) -> str:
    a, b = f"{low:.1g}", f"{high:.1g}"
    a, b = (f"{float(x):g}" for x in (a, b))
    return a if a == b else f"{a} ... {b}"
