"""The first run of a failing case, and what needs no hypothesis."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.checks.passes.derived_problems import launches
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.related_cases import variants

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["first_scene", "unwritten", "unwritten_read"]

_LAUNCHES = 24
"""Launches that are tried, at most, for one that is wrong."""
_FRESH, _NEEDED = 8, 2
"""Further cases that are run for what reads memory that nobody wrote, and how many of them must show it."""


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


def unwritten_read(trials: Trials, scene: Scene) -> tuple[str, int]:
    """Which memory of its own the kernel reads before anybody wrote it, in words, and on how many further cases that shows.

    It is said where every wrong element is NaN, as that memory is, and where each further failing case that was run shows the same load
    and no other wrong values. Empty where nobody watches the loads.
    """
    loads = _loads(scene)
    shown = 0
    for other in trials.of(islice(variants(trials.subject, scene.case), _FRESH), share=0.3) if loads else ():
        if other is scene or not other.failures:
            continue
        loads = {name: words for name, words in loads.items() if name in _loads(other)}
        shown += 1
    if not loads or shown < _NEEDED:
        return "", 0
    return f"elements of {next(iter(loads.values()))} are read that nobody wrote, and every wrong element is NaN", shown


def _loads(scene: Scene) -> dict[str, str]:
    """Per argument that is read before it is written, what reads it where; none where an element is wrong that is no NaN."""
    watch = scene.execution.watch
    wrong = scene.failures
    if watch is None or not all(bool(scene.outputs[name][where].isnan().all()) for name, where in wrong.items()):
        return {}
    reports = [each for each in watch.reports.values() if each.kind == "uninitialised" and each.argument]
    return {each.argument: f"{each.argument} ({each.kernel}, {each.place})" for each in reports}
