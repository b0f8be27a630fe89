"""Whether a wrong problem is so far from what a subject returned that its bounds need not be computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Truth

__all__ = ["is_far_off"]

_MARGIN = {"fp32": 2.0**-7, "fp16": 2.0**-5, "bf16": 2.0**-3}
"""Share of the largest value of V, and of an LSE, that no bound of a benign case comes near."""
_COARSE = 2.0**-5
"""The same for products in tf32."""
_BENIGN = 1 / 16
"""Of the margin, the most that a declared bound may be where a case is benign."""
_LIKE = 8.0
"""How much larger than the declared LSE, and four times that, an LSE may be whose bounds are like the declared ones."""


def is_far_off(scene: Scene, truth: Truth, names: frozenset[str]) -> bool:
    """Whether an element of O or of the LSE is off the value of `truth` by far more than a bound of its case could be.

    Nothing is said, which is False, of a case whose declared bounds are wide, of a wrong problem with much larger logits, of rows that see
    no key, and of elements about which nothing is asked.
    """
    asked = names & frozenset(FORWARD) & scene.right.keys()
    if not asked or "lse" not in scene.right:
        return False
    case = scene.case
    margin = _COARSE if case.precision == "tf32" and case.dtype == "fp32" else _MARGIN[case.dtype]
    if not _is_benign(scene, margin):
        return False
    lse, o = truth.exact_lse, truth.exact_o
    some = torch.isfinite(lse)
    declared = scene.truth.exact_lse
    declared = declared[torch.isfinite(declared)].abs()
    most = float(declared.amax()) if declared.numel() else 0.0
    if bool((lse[some].abs() > 4 * most + _LIKE).any()):
        return False
    height = float(truth.inputs.v.abs().amax()) if truth.inputs.v.numel() else 0.0
    for name in asked:
        got = scene.outputs[name] * (scene.unit if name == "lse" else 1.0)
        value, where = (lse, some) if name == "lse" else (o, some.unsqueeze(-1))
        allowed = margin * (1.0 + value.abs()) if name == "lse" else margin * height
        far = ((got - value).abs() > allowed) & where & torch.isfinite(got)
        if (free := scene.free.get(name)) is not None:
            far = far & ~free
        far = far & torch.isfinite(scene.right[name].total)
        if bool(far.any()):
            return True
    return False


def _is_benign(scene: Scene, margin: float) -> bool:
    """Whether the declared bounds of a case are small beside its values; found once."""
    if "benign" not in scene.memo:
        height = float(scene.inputs.v.abs().amax()) if scene.inputs.v.numel() else 0.0
        limits = {"o": margin * height * _BENIGN, "lse": margin * _BENIGN}
        totals = {name: scene.right[name].total for name in limits if name in scene.right}
        scene.memo["benign"] = height > 0 and all(
            bool((total[torch.isfinite(total)] <= limits[name]).all()) for name, total in totals.items()
        )
    found: bool = scene.memo["benign"]
    return found
