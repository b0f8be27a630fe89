"""Whether a wrong problem, or another O and LSE, gives gradients so far from what a subject returned that no bounds need be computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.checks.left_open import outside
from flashverify.diagnosis.backward_steps import gradients_of, steps_of
from flashverify.diagnosis.expected import Expected
from flashverify.diagnosis.screening import UNCHANGED, margin_of
from flashverify.outputs import BACKWARD, output

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Alternative, Expectations
    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

__all__ = ["has_far_gradients"]

_BENIGN = 1 / 16
"""Of the margin, the most that a declared bound may be of what its element is summed from, where a case is benign."""
_VANISHING = 2.0**-100
"""An error that no gradient is refuted by: weights below the smallest fp32 number are 0, whatever multiplies them."""
_LIKE = 8.0
"""How much larger than the declared logits, and four times these, logits may be whose bounds are like the declared ones."""


def has_far_gradients(scene: Scene, alternative: Alternative, names: frozenset[str]) -> bool:
    """Whether an element of a gradient among `names` is off what `alternative` gives by far more than a bound of its case could be.

    Nothing is said, which is False, of steps that are exchanged, of a case whose declared bounds are wide, of a wrong problem with much
    larger logits, of a backward that reads no O or LSE, and of elements about which nothing is asked or that are not finite.
    """
    asked = names & frozenset(BACKWARD) & scene.right.keys()
    same = alternative.inputs is None and alternative.given is None
    if not asked or same or alternative.steps is not None or not _is_benign(scene):
        return False
    o, lse = scene.o, scene.lse
    assert o is not None
    assert lse is not None
    if alternative.given is not None:
        o, lse = alternative.given(o, lse)
    rough = _rough(scene, alternative.inputs or scene.inputs, o, lse)
    if rough is None:
        return False
    found = rough if alternative.finish is None else alternative.finish(rough)
    return any(name in found and _is_far(scene, name, found[name]) for name in asked)


def _is_far(scene: Scene, name: str, rough: Expected) -> bool:
    got = scene.outputs[name]
    known = torch.isfinite(got) & torch.isfinite(scene.right[name].total)
    if (free := scene.free.get(name)) is not None:
        known = known & ~free
    return bool((known & ~rough.holds(got)).any())


def _rough(scene: Scene, inputs: Inputs, o: Tensor, lse: Tensor) -> Expectations | None:
    """Every gradient with a margin: a multiple of its declared bound where it is the declared one, else a share of what it is summed from.

    None where the logits, or an LSE, are much larger than the declared ones.
    """
    steps = steps_of(inputs, o, lse)
    largest = [_largest(x[torch.isfinite(x)]) for x in (steps.x, steps.z, steps.lse)]
    if not all(x <= 4 * _declared_size(scene) + _LIKE for x in largest):
        return None
    margin, found = margin_of(scene.case), {}
    open_rows = outside(scene.problem)
    declared: dict[str, Tensor] = scene.memo["declared gradients"]
    for name, (value, size) in gradients_of(scene, inputs, steps).items():
        known = torch.isfinite(value) & torch.isfinite(size)
        total = torch.where(known, margin * size + _VANISHING, torch.inf)
        if name in scene.right and value.shape == declared[name].shape:
            total = torch.where(value == declared[name], total.minimum(UNCHANGED * scene.right[name].total), total)
        zero = open_rows.get(name) if output(name).channels else None
        rough = Expected(value=value, total=total, overflow=torch.zeros_like(known), zero=zero)
        found[name] = rough if inputs.dlse is scene.inputs.dlse else scene.cancelling(name, rough)
    return found


def _largest(x: Tensor) -> float:
    return float(x.abs().amax()) if x.numel() else 0.0


def _declared_size(scene: Scene) -> float:
    """The largest magnitude among the declared logits and LSE; found once, with `_is_benign`."""
    found: float = scene.memo["size of logits"]
    return found


def _is_benign(scene: Scene) -> bool:
    """Whether the declared bounds of the gradients are small beside what these are summed from; found once."""
    if "benign gradients" not in scene.memo:
        scene.memo["benign gradients"] = _found_benign(scene)
    found: bool = scene.memo["benign gradients"]
    return found


def _found_benign(scene: Scene) -> bool:
    reads = scene.form.delta_from != "p" and scene.form.p_from != "forward"
    if scene.o is None or scene.lse is None or scene.inputs.do is None or scene.case.quantised is not None or not reads:
        return False
    steps = steps_of(scene.inputs, scene.o, scene.lse)
    scene.memo["size of logits"] = max(_largest(x[torch.isfinite(x)]) for x in (steps.x, steps.z, steps.lse))
    margin, gradients = margin_of(scene.case), gradients_of(scene, scene.inputs, steps)
    scene.memo["declared gradients"] = {name: value for name, (value, _) in gradients.items()}
    for name, (_, size) in gradients.items():
        if name in scene.right:
            total = scene.right[name].total
            told = torch.isfinite(total) & (size > 0)
            if not bool((total[told] <= _BENIGN * margin * size[told]).all()):
                return False
    return True
