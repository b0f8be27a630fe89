"""What every call has of the first one of the process, or of the first one with the same key, whatever its shapes: a setting or a tensor."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.checks.passes.first_calls import first_calls
from flashverify.checks.reuse.neighbours import settings_of
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.place import place_of
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.state.candidates import CANDIDATES
from flashverify.diagnosis.state.exchanging import LARGEST_FIRST, explains, is_peculiar, of_thing
from flashverify.diagnosis.state.first_keys import FEW_VALUES, HAS, KEYS, USUAL, first_with
from flashverify.diagnosis.state.wording import name_of, said, sentence
from flashverify.diagnosis.trials import work
from flashverify.judge.record import Diagnosis
from flashverify.outputs import KERNELS, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.state.candidates import Candidate
    from flashverify.diagnosis.state.first_keys import Key
    from flashverify.subjects.interface import Subject

__all__ = ["of_the_first_call"]

_NEEDED = 3
"""Calls that a name must explain."""
_GROWN = ((2, 3), (0, 0), (5, 9), (0, 14))
"""Rows and keys that are added to the case."""


@dataclasses.dataclass(slots=True)
class _Thing:
    """One thing, and the calls that have it.

    Attributes:
        candidate: what a call returns that has it of another one.
        keys: under which the first calls explain all scenes so far.
        shown: these scenes.
    """

    candidate: Candidate
    keys: list[tuple[str, Key]]
    scope: frozenset[str]
    shown: list[Scene]


def of_the_first_call(subject: Subject, case: Case, end: End, *, certain: bool) -> Diagnosis | None:
    """Names the thing of a problem that is the one of the first call of this process, or of the first one with a key.

    Args:
        subject: the kernel under test.
        case: where it fails.
        end: after which no further call is made.
        certain: whether it is known that the failure depends on earlier calls.
    """
    before = first_calls(subject)
    scene = _looked(subject, case) if before and work(case) <= LARGEST_FIRST else None
    if scene is None or not scene.failures:
        return None
    has = HAS | (FEW_VALUES if certain else {})
    made: dict[Case, Problem] = {}
    things = list(_fitting_things(subject, scene, before, has, made, end))
    if not things and (larger := _looked(subject, next(_cases(subject, case, ""), case))) is not None:
        # a small case may have rows whose values no other problem says
        things = list(_fitting_things(subject, larger, before, has, made, end)) if larger.failures else []
    for thing in things:
        first = first_with(before, thing.candidate.name, thing.keys[0][1], scene.case, has)
        if not certain and first is not None and _is_usual(thing.candidate.name, first):
            continue
        for each in _cases(subject, case, thing.candidate.name):
            if end.over:
                break
            other = _looked(subject, each)
            if other is None or not _agrees(subject, thing, other, before, has, made) or len(thing.shown) == _NEEDED:
                break
        if len(thing.shown) < _NEEDED or not thing.keys:
            continue
        key = thing.keys[0][1]
        if certain or is_peculiar(subject, thing.candidate, key, thing.scope, thing.shown, before, has, made):
            return _diagnosis(thing)
    return None


def _fitting_things(
    subject: Subject,
    scene: Scene,
    before: tuple[Case, ...],
    has: dict[str, Callable[[Case], bool]],
    made: dict[Case, Problem],
    end: End,
) -> Iterator[_Thing]:
    """The things of which some first call explains the scene, with the keys under which it is the first."""
    scopes = [frozenset(OUTPUTS), *(frozenset(kernel) for kernel in KERNELS)]
    for candidate in (each for group in CANDIDATES for each in group if each.name in has):
        if not has[candidate.name](scene.case):
            continue
        keys: dict[Case, list[tuple[str, Key]]] = {}
        for words, key in KEYS:
            if (first := first_with(before, candidate.name, key, scene.case, has)) is not None:
                keys.setdefault(first, []).append((words, key))
        for first, alike in keys.items():
            if end.over:
                return
            scope = next((s for s in scopes if explains(subject, candidate, first, scene, s, made)), None)
            if scope is not None:
                yield _Thing(candidate, alike, scope, [scene])


def _agrees(
    subject: Subject,
    thing: _Thing,
    scene: Scene,
    before: tuple[Case, ...],
    has: dict[str, Callable[[Case], bool]],
    made: dict[Case, Problem],
) -> bool:
    """Whether some key is left under which the first call explains the scene; one that is right says nothing."""
    if not thing.scope & scene.failures.keys():
        return True
    left: list[tuple[str, Key]] = []
    known: dict[Case, bool] = {}
    for words, key in thing.keys:
        first = first_with(before, thing.candidate.name, key, scene.case, has)
        if first is None:
            continue
        if first not in known:
            known[first] = explains(subject, thing.candidate, first, scene, thing.scope, made)
        if known[first]:
            left.append((words, key))
    thing.keys = left
    thing.shown.append(scene)
    return bool(left)


def _is_usual(name: str, case: Case) -> bool:
    return name in USUAL and USUAL[name](case)


def _cases(subject: Subject, case: Case, name: str) -> Iterator[Case]:
    """Cases with other seeds and sizes, every second one with another such thing where that is a setting."""
    plain = dataclasses.replace(case, storage=dataclasses.replace(case.storage, padding="zero"))
    for turn, (rows, keys) in enumerate(_GROWN):
        for more in ((rows, keys), (0, 0)):
            found = grown(plain, *more, regime="normal", seed=13 * turn + 500)
            if found is None or work(found) > LARGEST_FIRST or subject.supports.refusal(found) is not None:
                continue
            others = [each for each in settings_of(found) if of_thing(name, each[0])]
            if turn % 2 == 0 and others and subject.supports.refusal(others[0][1]) is None:
                found = others[0][1]
            yield found
            break


def _looked(subject: Subject, case: Case) -> Scene | None:
    try:
        return look(subject, case)
    except Exception:  # a defect may raise on other cases; those say nothing
        return None


def _diagnosis(thing: _Thing) -> Diagnosis:
    failing = [name for name in OUTPUTS if any(name in scene.failures for scene in thing.shown)]
    outputs = [name for name in failing if name in thing.scope]
    rest = "" if outputs == failing else "; other outputs are wrong in another way"
    words = said(thing.candidate, outputs, thing.keys[0][0])
    words = words.replace("the second call", "every call").replace("of the first (", "of another one (")
    return Diagnosis(
        name_of(thing.candidate, outputs),
        sentence(words),
        place=place_of(thing.shown[0], thing.shown[0].failures, outputs[0]),
        evidence=f"It explains {len(thing.shown)} calls of several seeds and sizes, each clearly{rest}.",
    )
