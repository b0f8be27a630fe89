"""Inputs of which nothing that a kernel returns depends: it takes others for them, always the same ones, or none."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import execute
from flashverify.checks.reuse.neighbours import settings_of
from flashverify.diagnosis.observe import seen
from flashverify.diagnosis.readings.deciding import DECIDING, decides_tiles, far_cases
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
_LARGE = ("logits-1e2", "logits-1e3")
"""Regimes under which a function of the logits shows that is right near 0."""
_RIGHT = 4
"""Right cases and larger ones on which an input must make no difference either, as far as there are any."""
_GROWN = ((40, 70), (70, 140))
"""Rows and keys that are added to the failing case for these."""
_OF_LOGITS = frozenset({"scale", "softcap", "slopes", "bias", "relative-bias"})
"""Things that O does not show where a row has a single key: nothing is said of it alone where the LSE depends on them."""
_KEPT = 64
"""Problems that are kept while things are put into them."""
_CLEAR = 4.0
"""Times the bounds that what is declared differs by where a case tells anything."""


class _Moved(NamedTuple):
    """What another input does to an output.

    Attributes:
        apart: bool, the elements of which it asks something else.
        same: bool, those that keep their bits.
    """

    apart: torch.Tensor
    same: torch.Tensor

    @property
    def alike(self) -> bool:
        """Whether no bit is another one."""
        return bool(self.same.all())


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
            alike = {name: found for name, found in moved.items() if found.alike}
            if alike and not _reads_queries(trials, each, alike):
                return []  # what does not depend on Q has no weights that any term could change
            told.append(each)
            same.update(alike.keys())
            other |= moved.keys() - alike.keys()
            if not same:
                break
        names = [name for name in OUTPUTS if same[name] >= _SHOWING and name not in other]
        other |= _dependent(trials, scene, thing) if names else set()
        names = [name for name in names if name not in other]
        if "lse" in other and thing.name in _OF_LOGITS:
            names = [name for name in names if name not in FORWARD]
        if names and len(told) >= _NEEDED and tested_on(told) and _far(trials, scene.case, thing, names):
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
            found |= {name for name, change in moved.items() if not change.alike}
    return found


def _accepted(trials: Trials, case: Case) -> bool:
    return work(case) <= _LARGEST and trials.subject.supports.refusal(case) is None


def _reads_queries(trials: Trials, scene: Scene, of: dict[str, _Moved]) -> bool:
    """Whether other queries change the bits of every element of which the thing asks something else, where they should change them."""
    query = next(thing for thing in THINGS if thing.name == "q")
    moved = _moved(trials, scene, query)
    return moved is None or not any(
        bool((found.apart & moved[name].apart & moved[name].same).any()) for name, found in of.items() if name in moved
    )


def _far(trials: Trials, case: Case, thing: Thing, names: list[str]) -> bool:
    """Whether outputs keep their bits too where the thing has much to say: where it decides whole tiles of pairs, or logits are large."""
    if thing.name in DECIDING:
        cases = far_cases(case, thing.name)
        found = None if cases is None else _mixed(trials, *cases, thing)
        if found is None or not decides_tiles(*found):
            return False
        moved = _between(*found)
        return bool(moved) and all(moved[name].alike for name in names if name in moved)
    for number, regime in enumerate(_LARGE):
        large = grown(case, 18, 34, regime=regime, seed=241 + number)
        scene = None if large is None else trials.scene(large)
        asked = None if scene is None else _moved(trials, scene, thing)
        if asked is not None and not all(asked[name].alike for name in names if name in asked):
            return False
    return True


def _of_several_sizes(trials: Trials, scene: Scene) -> list[Scene]:
    """The failing case and others of other sizes, the small ones first."""
    found = {_size(scene): scene}
    for each in sorted(trials.scenes.values(), key=lambda each: work(each.case)):
        if each.failures and work(each.case) <= _LARGEST:
            found.setdefault(_size(each), each)
    return list(found.values())


def _size(scene: Scene) -> tuple[int, int, int]:
    return scene.case.heads_q, scene.case.seq_q, scene.case.seq_k


def _moved(trials: Trials, scene: Scene, thing: Thing) -> dict[str, _Moved] | None:
    """The outputs of which another such input asks something else, and what it does to them; None where no case tells."""
    for case in _others(scene.case):
        found = _mixed(trials, scene.case, case, thing)
        moved = None if found is None else _between(*found)
        if moved:
            return moved
    return None


def _mixed(trials: Trials, case: Case, other: Case, thing: Thing) -> tuple[Scene, Scene] | None:
    """Runs of a case, and of it with the thing of another one; None where there is no such problem, or the subject raises."""
    device = trials.subject.device()
    mixed = thing.put(_unrun(case, device), _unrun(other, device))
    if mixed is None or any(trials.subject.supports.refusal(each) is not None for each in (case, mixed.case)):
        return None
    first, second = (materialize(each, device)[0] for each in (case, other))
    mixed = thing.put(first, second)
    one, two = (None if each is None else _run(trials, each) for each in (first, mixed))
    return None if one is None or two is None else (one, two)


@functools.lru_cache(_KEPT)
def _unrun(case: Case, device: str) -> Problem:
    """A problem that no subject is given: nearly all things are refused, and what a subject is given it may change."""
    return materialize(case, device)[0]


def _between(one: Scene, two: Scene) -> dict[str, _Moved]:
    """The outputs of which two runs ask something else, clearly."""
    found = {}
    for name in one.right.keys() & two.right.keys():
        a, b = one.right[name], two.right[name]
        apart = (a.value - b.value).abs() > _CLEAR * (a.total + b.total)
        apart &= torch.isfinite(a.total) & torch.isfinite(b.total)
        if bool(apart.any()):
            x, y = one.outputs[name], two.outputs[name]
            found[name] = _Moved(apart, (x == y) | (x.isnan() & y.isnan()))
    return found


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
