"""A logarithm whose error depends on the fraction of its number: linear in a few unknown numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import logits
from flashverify.diagnosis.precision.exponential import LN2, SMALL, fitted, how_well, waves

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["logarithm_words"]


def logarithm_words(scenes: list[Scene], others: tuple[Scene, ...], names: frozenset[str]) -> str:
    """What is wrong with the logarithm of the row sum, fitted on one scene and tested on the rest and on other cases; empty where nothing fits."""
    if names != {"lse"}:
        return ""
    found = fitted(scenes, others, names, _fractions)
    if found is None:
        return ""
    worst = float(waves(torch.linspace(0, 1, 257, dtype=torch.float64)).mT.mul(found[0]).sum(-1).abs().max())
    if worst > SMALL:
        return ""
    return (
        "a logarithm of the row sum by a polynomial of low degree: its error depends on the fraction "
        f"of the base-2 logarithm and is up to 2^{math.log2(worst):.1f} ({how_well(found[1])})"
    )


def _fractions(scene: Scene) -> dict[str, Tensor] | None:
    """The error of the LSE, a smooth function of the fraction of the base-2 logarithm of the row sum beside the row's maximum."""
    z = logits(scene.inputs)
    if not z.shape[-1]:
        return None
    top = z.amax(-1)
    if scene.inputs.sink is not None and scene.form.n_splits > 1:
        top = torch.maximum(top, scene.inputs.sink.double().view(1, -1, 1))
    exponent = (scene.truth.exact_lse - top) / LN2
    known = torch.isfinite(exponent)
    exponent = exponent.masked_fill(~known, 0.0)
    return {"lse": waves(exponent - exponent.floor()).movedim(0, -1) * known.unsqueeze(-1)}
