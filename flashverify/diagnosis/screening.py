"""Whether a wrong problem is so far from what a subject returned that its bounds need not be computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import products
from flashverify.diagnosis.expected import Expected
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.diagnosis.hypothesis import Expectations, Finish
    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs, Truth

__all__ = ["UNCHANGED", "is_far_off", "margin_of"]

_MARGIN = {"fp32": 2.0**-7, "fp16": 2.0**-5, "bf16": 2.0**-3}
"""Share of the largest value of V, and of an LSE, that no bound of a benign case comes near."""
_COARSE = 2.0**-5
"""The same for products in tf32."""
UNCHANGED = 16.0
"""Times its declared bound an element is off at most whose value a wrong problem leaves as it is."""
_BENIGN = 1 / 16
"""Of the margin, the most that a declared bound may be where a case is benign."""
_LIKE = 8.0
"""How much larger than the declared LSE, and four times that, an LSE may be whose bounds are like the declared ones."""


def is_far_off(scene: Scene, truth: Truth, names: frozenset[str], finish: Finish | None = None) -> bool:
    """Whether an element of O or of the LSE is off the value of `truth` by far more than a bound of its case could be.

    Nothing is said, which is False, of a case whose declared bounds are wide, of a wrong problem with much larger logits, of rows that see
    no key, and of elements about which nothing is asked.

    Args:
        scene: a run.
        truth: of the wrong problem.
        names: outputs.
        finish: what changes the values of the forward.
    """
    asked = names & frozenset(FORWARD) & scene.right.keys()
    if not asked or "lse" not in scene.right:
        return False
    margin = margin_of(scene.case)
    if not _is_benign(scene, margin):
        return False
    lse, o = truth.exact_lse, truth.exact_o
    some = torch.isfinite(lse)
    declared = scene.truth.exact_lse
    declared = declared[torch.isfinite(declared)].abs()
    most = float(declared.amax()) if declared.numel() else 0.0
    if bool((lse[some].abs() > 4 * most + _LIKE).any()):
        return False
    if _has_larger_parts(scene, truth.inputs, 4 * most + _LIKE):
        return False
    height = float(truth.inputs.v.abs().amax()) if truth.inputs.v.numel() else 0.0
    nowhere = torch.zeros((), dtype=torch.bool)
    rough: Expectations = {}
    for name, value, allowed in (("lse", lse, margin * (1.0 + lse.abs())), ("o", o, torch.tensor(margin * height))):
        unit = scene.unit if name == "lse" else 1.0
        seen = some if name == "lse" else some.unsqueeze(-1)
        total = torch.where(seen, allowed / unit, torch.inf).expand_as(value)
        own = scene.truth.exact_lse if name == "lse" else scene.truth.exact_o
        if name in scene.right and value.shape == own.shape:
            unchanged = value == own
            total = torch.where(unchanged, total.minimum(UNCHANGED * scene.right[name].total), total)
        rough[name] = Expected(value=value / unit, total=total, overflow=nowhere.expand_as(value))
    rough = rough if finish is None else finish(rough)
    for name in asked & rough.keys():
        got = scene.outputs[name]
        far = ~rough[name].holds(got, scene.free.get(name)) & torch.isfinite(got)
        if bool((far & torch.isfinite(scene.right[name].total)).any()):
            return True
    return False


def _has_larger_parts(scene: Scene, wrong: Inputs, limit: float) -> bool:
    """Whether logits that another softcap, or none, leaves small are made of larger terms, whose rounding the declared ones do not have."""
    if wrong.softcap == scene.inputs.softcap:
        return False
    parts = [products(wrong), *(bias.double() for bias in wrong.biases)]
    return any(bool((part.nan_to_num(0.0, 0.0, 0.0).abs() > limit).any()) for part in parts)


def margin_of(case: Case) -> float:
    """Share of what an output is summed from that no bound of a benign case comes near."""
    return _COARSE if case.precision == "tf32" and case.dtype == "fp32" else _MARGIN[case.dtype]


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
