"""Runs of a subject to which numerical forms are fitted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from flashverify.case.text import format_case, parse_case
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.precision.fitting import small
from flashverify.diagnosis.precision.forms import worst_beside_bounds
from flashverify.probing.view import view_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.diagnosis.observation import Scene
    from flashverify.probing.questions import FormFit
    from flashverify.subjects.interface import Subject

__all__ = ["end_to_end", "forward_alone", "gross_errors", "scenes_of", "without"]


def scenes_of(subject: Subject, asked: FormFit, texts: Iterable[str]) -> list[Scene]:
    """The runs of those cases that the subject takes, with the outputs that are judged."""
    found = []
    view, _ = view_of(subject, asked.assumed)
    for text in texts:
        try:
            scene = look(view, parse_case(text))
        except Exception:  # a case that the subject refuses says nothing about its form
            continue
        if scene is not None:
            ignored = asked.assumed.ignored
            kept = {name: x for name, x in scene.outputs.items() if name not in ignored}
            right = {name: x for name, x in scene.right.items() if name in kept}
            found.append(dataclasses.replace(scene, outputs=kept, right=right))
    return found


def gross_errors(scenes: Sequence[Scene]) -> dict[str, tuple[str, str]]:
    """Outputs that are outside their bounds and far from right in some scene, each with a sentence and the case."""
    found: dict[str, tuple[str, str]] = {}
    for scene in scenes:
        failing = worst_beside_bounds(end_to_end(scene), scene.form)
        for name, expected in scene.right.items():
            if name in found or name not in failing or small(scene, frozenset({name})):
                continue
            error = (scene.outputs[name] - expected.value).abs().nan_to_num(torch.inf)
            at = int(error.reshape(-1).argmax())
            index = [int(i) for i in np.unravel_index(at, error.shape)]
            got, value = (float(x.reshape(-1)[at]) for x in (scene.outputs[name], expected.value))
            found[name] = (f"{name}{index} is {got:.6g} where the exact value is {value:.6g}", format_case(scene.case))
    return found


def without(scene: Scene, names: Iterable[str]) -> Scene:
    """The scene without some of its outputs."""
    kept = {name: x for name, x in scene.outputs.items() if name not in names}
    return dataclasses.replace(
        scene, outputs=kept, right={name: scene.right[name] for name in kept if name in scene.right}, memo={}
    )


def end_to_end(scene: Scene) -> Scene:
    """The scene with gradients that are judged without the subject's own O and LSE."""
    return dataclasses.replace(scene, o=None, lse=None, memo={}, known={})


def forward_alone(scene: Scene) -> Scene:
    """The scene without its gradients."""
    inputs = dataclasses.replace(scene.inputs, do=None, dlse=None)
    return dataclasses.replace(scene, inputs=inputs, o=None, lse=None, memo={}, known={})
