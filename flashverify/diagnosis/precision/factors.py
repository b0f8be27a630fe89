"""A step that is multiplied by a number near 1: a scale or a constant with too few digits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.precision.fitting import asked, contradicted, lost, predicted
from flashverify.diagnosis.precision.model_tables import EVERYWHERE
from flashverify.diagnosis.precision.models import Model
from flashverify.diagnosis.precision.rounding import same
from flashverify.diagnosis.precision.steps import Steps, declared
from flashverify.outputs import BACKWARD, FORWARD, OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.precision.rounding import Rounding

__all__ = ["factor_words"]

_LARGEST = 2.0**-5
"""Distance of a factor from 1 up to which it is a matter of precision."""
_EXPLAINED = 0.9
_STEP, _REFINED = 2.0**-12, 6
_SETTLED = 1e-6
_SAME = 0.5
"""Of two factors that explain an error, the other one is named too unless it leaves so much more."""
_OF_DELTA = ("delta", *OF_DS, "dsink")
_FACTORS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("logit", "logits", EVERYWHERE, ""),
    ("product", "the products of Q and K", EVERYWHERE, "biases"),
    ("terms", "the bias", EVERYWHERE, "biases"),
    ("slopes", "the slopes of ALiBi", EVERYWHERE, "slopes"),
    ("sink", "the sink", (*FORWARD, "dsink"), "sink"),
    ("tanh", "the tanh of the softcap", EVERYWHERE, "softcap"),
    ("alpha_of_o", "the factor that rescales the accumulator of O", ("o",), ""),
    ("alpha", "the factor that rescales the row sum", FORWARD, ""),
    ("summed", "the row sum", FORWARD, ""),
    ("o", "O", ("o",), ""),
    ("lse", "the LSE", ("lse",), ""),
    ("dp", "dP", OF_DS, ""),
    ("delta", "delta", _OF_DELTA, ""),
    ("dlse", "dLSE", _OF_DELTA, "dlse"),
    ("read_lse", "the LSE that the backward reads", BACKWARD, ""),
    ("gradient", "the gradient", ("dq", "dk", "dv", "dbias"), ""),
    ("ds_summed", "the gradient", ("drelative_bias",), ""),
    ("sink_weight", "the gradient", ("dsink",), ""),
)
"""Field of `Steps`, words, what it reaches, and the field of `Inputs` that is needed."""


def factor_words(scenes: list[Scene], others: tuple[Scene, ...], names: frozenset[str], deadline: End) -> str:
    """Which step is multiplied by which number, one and the same on every run; empty where none leaves all outputs within bounds.

    Args:
        scenes: failing runs; the number is fitted on the first one.
        others: runs of other cases that must not contradict it.
        names: of outputs that are made together.
        deadline: after which nothing more is tried.
    """
    tile = scenes[0].form.block_n
    found: list[tuple[float, str]] = []
    for step, words, outputs, needs in _FACTORS:
        plain = Model(words=words, change=lambda steps: steps, outputs=outputs, needs=needs)
        if not names <= set(outputs) or not plain.acts_on(scenes[0]) or deadline.over:
            continue
        number = _fitted(scenes[0], names, step, tile)
        if number is None:
            continue
        change = _times(step, 1.0 + number)
        left = max(_left(scene, names, change, tile) for scene in scenes)
        if left < 1.0 - _EXPLAINED and not contradicted(change, tile, names, others):
            found.append(
                (left, f"{words} times {1.0 + number:.7g} ({100 * (1 - left):.0f} % of the squared error explained)")
            )
    least = min((left for left, _ in found), default=0.0)
    return ", or ".join([text for left, text in found if _SAME * left <= max(least, 1e-3)][:3])


def _times(step: str, factor: float) -> Callable[[Steps], Steps]:
    """The steps with one multiplied before what is declared of it."""

    def change(steps: Steps) -> Steps:
        before: Rounding = getattr(steps, step) or same
        changed: dict[str, Any] = {step: lambda x: before(x * factor)}
        return replace(steps, **changed)

    return change


def _fitted(scene: Scene, names: frozenset[str], step: str, tile: int | None) -> float | None:
    """The factor minus 1, by least squares in a few steps; None where it is none of precision, or the step reaches nothing."""
    exact, plain, number = Steps(tile=tile), replace(declared(scene), tile=tile), 0.0
    exact = replace(exact, splits=plain.splits)
    for _ in range(_REFINED):
        beside = (_times(step, 1.0 + number + h)(exact) for h in (_STEP, -_STEP))
        more, less = (predicted(scene, steps, names) for steps in beside)
        wrong = predicted(scene, _times(step, 1.0 + number)(plain), names)
        moves, errors = [], []
        for name in sorted(names):
            if name not in wrong:
                return None
            total = scene.right[name].total
            move, error = (more[name] - less[name]) / (2 * _STEP) / total, (scene.outputs[name] - wrong[name]) / total
            known = asked(scene, name) & torch.isfinite(move) & torch.isfinite(error)
            moves.append(move[known])
            errors.append(error[known])
        move, error = torch.cat(moves), torch.cat(errors)
        size = float((move**2).sum())
        more_of_it = float((move * error).sum()) / size if size else 0.0
        number += more_of_it
        if not 0.0 < abs(number) <= _LARGEST:
            return None
        if abs(more_of_it) < _SETTLED * abs(number):
            break
    return number


def _left(scene: Scene, names: frozenset[str], change: Callable[[Steps], Steps], tile: int | None) -> float:
    """The largest share of the squared error of an output that a change leaves; 1 where an element is lost or lies outside its bounds."""
    plain = replace(declared(scene), tile=tile)
    wrong, right = predicted(scene, change(plain), names), predicted(scene, plain, names)
    shares = [0.0]
    for name in names:
        total = scene.right[name].total
        left, error = ((scene.outputs[name] - x[name]) / total for x in (wrong, right))
        known = asked(scene, name)
        if lost(scene, name) or not bool((left[known].abs() <= 1.0).all()):
            return 1.0
        whole = float((error[known] ** 2).sum())
        shares.append(float((left[known] ** 2).sum()) / whole if whole else 1.0)
    return max(shares)
