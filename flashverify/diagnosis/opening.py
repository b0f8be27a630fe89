"""The first run of a failing case, and what needs no hypothesis."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.checks.passes.derived_problems import launches
from flashverify.diagnosis.observe import look

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["first_scene", "unwritten"]

_LAUNCHES = 24
"""Launches that are tried, at most, for one that is wrong."""


def first_scene(subject: Subject, case: Case, verdict: Verdict) -> tuple[Scene, dict[str, Tensor]] | None:
    """The run of `case` and what fails; of the check of padding, or where nothing fails, with the paddings that show most, of that of launches with another one."""
    paddings = [case.storage.padding]
    if verdict.check in ("padding", "memory"):
        paddings += ["nan", "max", "dirt"]
    for padding in dict.fromkeys(paddings):
        scene = look(subject, replace(case, storage=replace(case.storage, padding=padding)))
        if scene is not None and scene.failures:
            return scene, scene.failures
    for launch in islice(launches(subject, case), _LAUNCHES if verdict.check == "config" else 0):
        scene = look(subject, replace(case, launch=launch))
        if scene is not None and scene.failures:
            return scene, scene.failures
    return None


def unwritten(scene: Scene, failing: dict[str, Tensor]) -> str:
    """That every failing element is one that nobody wrote; empty where not."""
    masks = scene.execution.unwritten
    if all(name in masks and bool((masks[name].cpu() | ~wrong).all()) for name, wrong in failing.items()):
        return f"Elements of {', '.join(failing)} are never written."
    return ""
