"""What every call has of the first one of the process, or of the first one with the same key, whatever its shapes: the seed of dropout."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.checks.passes.first_calls import first_calls
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.place import place_of
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.state.calling import Called, Way
from flashverify.diagnosis.state.candidates import CANDIDATES, fitting
from flashverify.diagnosis.state.pairs import Pair
from flashverify.diagnosis.state.wording import name_of, said, sentence
from flashverify.judge.record import Diagnosis
from flashverify.outputs import KERNELS, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.state.candidates import Candidate
    from flashverify.subjects.interface import Subject

__all__ = ["draws_of_the_first_call"]

_NEEDED = 3
"""Calls that a name must explain."""
_NAMES = ("dropout-seed", "dropout-seed-alone", "dropout-offset")
_GROWN = ((0, 0), (3, 5), (5, 9), (0, 14), (6, 2))
"""Rows and keys that are added to the case."""
_SMALL = 64
"""Rows and keys from which on they are not."""
_KEYS: tuple[tuple[str, Callable[[Case], Any]], ...] = (
    ("the first call of the process with dropout", lambda _: ()),
    ("the first call with its probability of dropout", lambda case: case.dropout),
    ("the first call with its dtype", lambda case: case.dtype),
    ("the first call with its head dims", lambda case: (case.dim_qk, case.dim_v)),
    ("the first call with its number of query heads", lambda case: case.heads_q),
    ("the first call with its number of sequences", lambda case: case.batch),
    ("the first call with its sequences and heads", lambda case: (case.batch, case.heads_q)),
)
"""Keys under which the first call is kept, in words, and as a function of the case."""


def draws_of_the_first_call(subject: Subject, case: Case, end: End) -> Diagnosis | None:
    """Names the seed or the offset of dropout that is the one of the first call of this process, or of the first one with a key.

    A seed has so many values that a wrong kernel that keeps nothing does not draw by that of another call.

    Args:
        subject: the kernel under test.
        case: where it fails.
        end: after which no further call is made.
    """
    before = [each for each in first_calls(subject) if each.dropout]
    if not case.dropout or not before:
        return None
    candidates = tuple(each for group in CANDIDATES for each in group if each.name in _NAMES)
    scenes = []
    for each in _cases(subject, case):
        if end.over:
            break
        scene = _looked(subject, each)
        if scene is not None and scene.failures:
            scenes.append(scene)
        if not scenes or len(scenes) == _NEEDED:
            break
    if len(scenes) < _NEEDED:
        return None
    for scope in map(frozenset, (OUTPUTS, *KERNELS)):
        for words, key in _KEYS:
            left = candidates
            for scene in scenes:
                first = next((x for x in before if key(x) == key(scene.case)), None)
                left = tuple(fitting(left, subject, _after(first, scene), scope)) if first and left else ()
            if left:
                return _diagnosis(left[0], words, scenes, scope)
    return None


def _cases(subject: Subject, case: Case) -> Iterator[Case]:
    plain = dataclasses.replace(case, storage=dataclasses.replace(case.storage, padding="zero"))
    for turn, (rows, keys) in enumerate(_GROWN):
        more = (rows, keys) if max(case.seq_q, case.seq_k) < _SMALL else (0, 0)
        found = grown(plain, *more, regime="normal", seed=11 * turn + 400)
        if found is not None and subject.supports.refusal(found) is None:
            yield found


def _looked(subject: Subject, case: Case) -> Scene | None:
    try:
        return look(subject, case)
    except Exception:  # a defect may raise on other cases; those say nothing
        return None


def _after(first: Case, later: Scene) -> Called:
    """The later call as it would be with the draws of the first one, which are a number of its case alone."""
    values = dataclasses.replace(later.case.values, seed=first.values.seed)
    case = dataclasses.replace(later.case, values=values)
    earlier = dataclasses.replace(later, problem=dataclasses.replace(later.problem, case=case), memo={}, known={})
    later.memo.clear()  # what was made of another first call
    return Called(pair=Pair("other draws", case, later.case), way=Way.APART, earlier=earlier, later=later, strided={})


def _diagnosis(candidate: Candidate, words: str, scenes: list[Scene], scope: frozenset[str]) -> Diagnosis:
    outputs = [name for name in OUTPUTS if name in scope and any(name in scene.failures for scene in scenes)]
    failing = [name for name in OUTPUTS if any(name in scene.failures for scene in scenes)]
    rest = "" if outputs == failing else "; other outputs are wrong in another way"
    every = (
        said(candidate, outputs, words).replace("the second call", "every call").replace("the first (", "another one (")
    )
    return Diagnosis(
        name_of(candidate, outputs),
        sentence(every),
        place=place_of(scenes[0], scenes[0].failures, outputs[0]),
        evidence=f"It explains {len(scenes)} calls with other seeds, each clearly{rest}.",
    )
