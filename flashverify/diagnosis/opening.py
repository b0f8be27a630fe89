"""The first run of a failing case, and what needs no hypothesis."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.checks.passes.derived_problems import launches
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.untouched import untouched

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.trials import Trials
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["first_scene", "unwritten", "unwritten_read", "watched_always"]

_LAUNCHES = 24
"""Launches that are tried, at most, for one that is wrong."""
_WATCHED = {
    "double-write": "several programs store to the same elements of {}",
    "uninitialised": "elements of {} are read that nobody wrote",
}
"""Kinds of accesses that are reported, in words."""
_ALWAYS = 4
"""Failing cases that must show such an access."""
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
    masks = {name: untouched(scene, name) for name in failing}
    made = any(
        name not in scene.execution.unwritten for name in failing
    )  # a kernel that reads such memory makes as much
    if (made and _loads(scene)) or any(m is None or bool((failing[n] & ~m).any()) for n, m in masks.items()):
        return ""
    return f"Elements of {', '.join(failing)} are never written."


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


def watched_always(trials: Trials) -> str:
    """Stores of several programs to one place, and loads of memory that nobody wrote: what every failing case shows and no right one, in words; else empty."""
    scenes = trials.scenes.values()
    failing = [_accesses(scene) for scene in scenes if scene.failures]
    right = {key for scene in scenes if not scene.failures for key in _accesses(scene)}
    if len(failing) < _ALWAYS or len(failing) == len(scenes):
        return ""
    always = [key for key in failing[0] if key not in right and all(key in found for found in failing)]
    said = [_WATCHED[kind].format(failing[0][kind, argument]) for kind, argument in always]
    return f"on every failing case, and on no right one, {' and '.join(said)}" if said else ""


def _loads(scene: Scene) -> dict[str, str]:
    """Per argument that is read before it is written, what reads it where; none where an element is wrong that is no NaN."""
    wrong = scene.failures
    if not all(bool(scene.outputs[name][where].isnan().all()) for name, where in wrong.items()):
        return {}
    return {argument: words for (kind, argument), words in _accesses(scene).items() if kind == "uninitialised"}


def _accesses(scene: Scene) -> dict[tuple[str, str], str]:
    """Per kind of access and argument, what makes it where."""
    watch = scene.execution.watch
    reports = [] if watch is None else [each for each in watch.reports.values() if each.kind in _WATCHED]
    return {
        (each.kind, each.argument): f"{each.argument} ({each.kernel}, {each.place})"
        for each in reports
        if each.argument
    }
