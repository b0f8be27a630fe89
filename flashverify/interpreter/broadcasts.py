"""Splats and broadcasts that need not be made: NumPy broadcasts their operands itself, with the same result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flashverify.interpreter.steps import Slot

if TYPE_CHECKING:
    from flashverify.interpreter.recording import Recording
    from flashverify.interpreter.steps import Step

__all__ = ["unmade", "uses"]

_SPREADS = ("create_splat", "create_broadcast")
_INEXACT = frozenset({np.fmax, np.fmin, np.maximum, np.minimum, np.fmod})
"""Functions whose results for NaN or zeros of either sign may depend on the layout of their operands."""


def uses(recording: Recording, results: list[int]) -> dict[int, list[Step | None]]:
    """The steps that use each slot; None is the caller.

    Args:
        recording: of a call.
        results: slots that the call gives back.
    """
    used: dict[int, list[Step | None]] = {}
    for step in recording.steps:
        for x in (*step.args, *step.kwargs.values()):
            if isinstance(x, Slot):
                used.setdefault(x.number, []).append(step)
    for number in results:
        used.setdefault(number, []).append(None)
    return used


def _broadcasting(step: Step) -> bool:
    if any(not isinstance(x, Slot) for x in step.args):
        return False
    if step.name in ("create_addptr", "create_select"):
        return True
    return isinstance(step.ufunc, np.ufunc) and len(step.args) == 2 and step.ufunc not in _INEXACT


def unmade(recording: Recording, used: dict[int, list[Step | None]]) -> dict[int, tuple[int, int]]:
    """The results of splats and broadcasts whose one use broadcasts itself.

    Args:
        recording: of a call.
        used: see `uses`.

    Returns:
        By slot, the slot to take instead, and the rank of the tile where that is a scalar; else 0.
    """
    shapes = recording.shapes
    made = {step.outs[0]: step for step in recording.steps if step.name in _SPREADS}
    found: dict[int, tuple[int, int]] = {}
    for step in recording.steps:
        if not _broadcasting(step):
            continue
        tiles, here = [], {}
        for x in step.args:
            tile = shapes[x.number]
            spread = made.get(x.number)
            if spread is not None and len(used[x.number]) == 1:
                scalar = spread.name == "create_splat"
                of = spread.args[1 if scalar else 0]
                if isinstance(of, Slot):
                    here[x.number] = (of.number, len(tile) if scalar else 0)
                    tile = (1,) * len(tile) if scalar else shapes[of.number]
            tiles.append(tile)
        if np.broadcast_shapes(*tiles) == shapes[step.outs[0]]:
            found |= here
    return found
