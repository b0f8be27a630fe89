"""Inputs of which nothing that a kernel returns depends: it takes others for them, always the same ones, or none."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import torch

from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import execute
from flashverify.checks.reuse.neighbours import settings_of
from flashverify.diagnosis.observe import seen
from flashverify.diagnosis.readings.fresh import tested_on
from flashverify.diagnosis.readings.said import Said, listed
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.state.things import THINGS
from flashverify.diagnosis.trials import work
from flashverify.outputs import FORWARD, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.state.things import Thing
    from flashverify.diagnosis.trials import Trials

__all__ = ["unread_inputs"]

_ASKED = (
    "scale",
    "softcap",
    "sink",
    "slopes",
    "bias",
    "relative-bias",
    "key-lengths",
    "query-lengths",
    "causal",
    "window",
    "dropout",
    "scales-of-codes",
    "zero-points",
    "dlse",
)
"""Things of a problem that are given to a subject by themselves."""
_NEEDED, _MOST = 3, 4
"""Failing cases on which an input makes no difference, at least, and those that are tried."""
_SHOWING = 2
"""Of these, those on which something else is declared of an output that is said."""
_SILENT = 2
"""Cases that lack an input, or on which another one changes nothing, after which no further one is tried."""
_LARGEST = 20_000
_RIGHT = 4
"""Right cases and larger ones on which an input must make no difference either, as far as there are any."""
_GROWN = ((40, 70), (70, 140))
"""Rows and keys that are added to the failing case for these."""
_OF_LOGITS = frozenset({"scale", "softcap", "slopes", "bias", "relative-bias"})
"""Things that O does not show where a row has a single key: nothing is said of it alone where the LSE depends on them."""
_CLEAR = 4.0
"""Times the bounds that what is declared differs by where a case tells anything."""
_SHOWN = {"o": "O", "lse": "LSE", "dq": "dQ", "dk": "dK", "dv": "dV"}


def unread_inputs(trials: Trials, scene: Scene) -> list[Said]:
    """Which input makes no difference: two calls that differ in it alone return the same bits, where other values are declared.

    Args:
        trials: runs of the subject.
        scene: a failing run.
    """
    failing = _of_several_sizes(trials, scene)
    for thing in (thing for name in _ASKED for thing in THINGS if thing.name == name):
        told: list[Scene] = []
        same: Counter[str] = Counter()
        other: set[str] = set()
        for number, each in enumerate(failing):
            if not trials.left() or len(told) == _MOST or (number > _SILENT and not told):
                break
            moved = _moved(trials, each, thing)
            if moved is None:
                continue
            if any(moved.values()) and not _reads_queries(
                trials, each, [name for name, alike in moved.items() if alike]
            ):
                return []  # what does not depend on Q has no weights that any term could change
            told.append(each)
            same.update(name for name, alike in moved.items() if alike)
            other |= {name for name, alike in moved.items() if not alike}
            if not same:
                break
        names = [name for name in OUTPUTS if same[name] >= _SHOWING and name not in other]
        other |= _dependent(trials, scene, thing) if names else set()
        names = [name for name in names if name not in other]
        if "lse" in other and thing.name in _OF_LOGITS:
            names = [name for name in names if name not in FORWARD]
        if names and len(told) >= _NEEDED and tested_on(told):
            outputs = listed([_SHOWN.get(name, name) for name in names])
            verb, alone = "does" if len(names) == 1 else "do", "them" if thing.plural else "it"
            words = f"{outputs} {verb} not depend on the {thing.words}: calls that differ in {alone} alone return the same bits"
            return [Said(words, len(told))]
    return []


def _dependent(trials: Trials, scene: Scene, thing: Thing) -> set[str]:
    """The outputs that depend on an input on cases that are right, or on larger ones: a small case may show nothing of it."""
    right = [each for each in trials.scenes.values() if not each.failures and work(each.case) <= _LARGEST]
    right.sort(key=lambda each: -work(each.case))
    found: set[str] = set()
    asked = 0
    larger = (grown(scene.case, *by, regime="normal", seed=77) for by in _GROWN)
    fresh = (trials.scene(case) for case in larger if case is not None and _accepted(trials, case))
    for each in chain(right, fresh):
        if asked == _RIGHT or not trials.left():
            break
        moved = None if each is None else _moved(trials, each, thing)
        if moved is not None:
            asked += 1
            found |= {name for name, alike in moved.items() if not alike}
    return found


def _accepted(trials: Trials, case: Case) -> bool:
    return work(case) <= _LARGEST and trials.subject.supports.refusal(case) is None


def _reads_queries(trials: Trials, scene: Scene, names: list[str]) -> bool:
    """Whether other queries change the bits of one of the outputs, where they should change them."""
    query = next(thing for thing in THINGS if thing.name == "q")
    moved = _moved(trials, scene, query)
    return moved is None or not all(moved.get(name, False) for name in names)


def _of_several_sizes(trials: Trials, scene: Scene) -> list[Scene]:
    """The failing case and others of other sizes, the small ones first."""
    found = {_size(scene): scene}
    for each in sorted(trials.scenes.values(), key=lambda each: work(each.case)):
        if each.failures and work(each.case) <= _LARGEST:
            found.setdefault(_size(each), each)
    return list(found.values())


def _size(scene: Scene) -> tuple[int, int, int]:
    return scene.case.heads_q, scene.case.seq_q, scene.case.seq_k


def _moved(trials: Trials, scene: Scene, thing: Thing) -> dict[str, bool] | None:
    """The outputs of which another such input asks something else, and whether it leaves their bits as they are; None where no case tells."""
    device = trials.subject.device()
    for case in _others(scene.case):
        first, _ = materialize(scene.case, device)
        other, _ = materialize(case, device)
        mixed = thing.put(first, other)
        if mixed is None or trials.subject.supports.refusal(mixed.case) is not None:
            continue
        one, two = (_run(trials, problem) for problem in (first, mixed))
        if one is None or two is None:
            continue
        names = [name for name in one.right.keys() & two.right.keys() if _apart(one, two, name)]
        if names:
            return {name: _alike(one.outputs[name], two.outputs[name]) for name in names}
    return None


def _others(case: Case) -> Iterator[Case]:
    """Cases of the same shapes with other values, and with other settings."""
    yield dataclasses.replace(
        case, values=dataclasses.replace(case.values, seed=case.values.seed + 1, regime="normal", edits=())
    )
    yield from (changed for _, changed in settings_of(case))


def _run(trials: Trials, problem: Problem) -> Scene | None:
    try:
        return seen(trials.subject, problem, execute(trials.subject, problem))
    except Exception:  # a defect may raise on other inputs; those say nothing
        return None


def _apart(one: Scene, two: Scene, name: str) -> bool:
    """Whether other values are declared of an output, clearly."""
    a, b = one.right[name], two.right[name]
    far = (a.value - b.value).abs() > _CLEAR * (a.total + b.total)
    return bool((far & torch.isfinite(a.total) & torch.isfinite(b.total)).any())


def _alike(x: torch.Tensor, y: torch.Tensor) -> bool:
    return bool(((x == y) | (x.isnan() & y.isnan())).all())
