"""What every call has of the first one of the process, or of the first one with the same key, whatever its shapes: a setting or a tensor."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.first_calls import first_calls
from flashverify.checks.reuse.neighbours import settings_of
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.place import place_of
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.state.calling import Called, Way
from flashverify.diagnosis.state.candidates import CANDIDATES, fitting
from flashverify.diagnosis.state.pairs import Pair
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
    from flashverify.subjects.interface import Subject

    _Key = Callable[[Case], Any]

__all__ = ["of_the_first_call"]

_NEEDED = 3
"""Calls that a name must explain."""
_GROWN = ((2, 3), (0, 0), (5, 9), (0, 14))
"""Rows and keys that are added to the case."""
_LARGEST = 20_000
"""Pairs of a first call whose tensors are made, and of a case that is asked."""
_HAS: dict[str, Callable[[Case], bool]] = {
    "scale": lambda _: True,
    "softcap": lambda case: case.logits.softcap is not None,
    "window": lambda case: case.mask.window is not None,
    "window-left": lambda case: case.mask.window is not None and case.mask.window[0] is not None,
    "window-right": lambda case: case.mask.window is not None and case.mask.window[1] is not None,
    "dropout": lambda case: bool(case.dropout),
    "slopes": lambda case: bool(case.logits.alibi),
    "sink": lambda case: case.logits.sink,
    "bias": lambda case: case.logits.bias is not None,
    "relative-bias": lambda case: case.logits.relative_bias is not None,
    "key-lengths": lambda case: case.mask.key_lengths is not None,
    "query-lengths": lambda case: case.mask.query_lengths is not None,
    "prefix-lengths": lambda case: case.mask.prefix_lengths is not None,
    "cu-seqlens": lambda case: case.mask.packed is not None,
    "page-table": lambda case: case.storage.page_size is not None,
    "bitmap": lambda case: case.mask.bitmap is not None,
    "blocks": lambda case: case.mask.blocks is not None,
    "tree": lambda case: case.mask.tree is not None,
    "selection": lambda case: case.mask.selection is not None,
}
"""Things that have so many values that a kernel which keeps nothing does not compute by that of another call, and which cases have them."""
_USUAL: dict[str, Callable[[Case], bool]] = {
    "scale": lambda case: math.frexp(abs(case.softmax_scale))[0] == 0.5 or case.softmax_scale == case.dim_qk**-0.5,
    "softcap": lambda case: case.logits.softcap is not None and case.logits.softcap.is_integer(),
}
"""Where the value of a thing is one that code may hold as a constant."""
_FEW_VALUES: dict[str, Callable[[Case], bool]] = {"causal": lambda case: case.mask.causal is not None}
"""Things that a kernel which keeps nothing may take for another one always: asked only where a fresh process is right."""
_KEYS: tuple[tuple[str, _Key], ...] = (
    ("the first call of the process that has one", lambda _: ()),
    ("the first one with a window on the same sides", lambda case: tuple(x is None for x in case.mask.window or ())),
    ("the first one with its dtype", lambda case: case.dtype),
    ("the first one with its head dims", lambda case: (case.dim_qk, case.dim_v)),
    ("the first one with its head dim of Q and K", lambda case: case.dim_qk),
    ("the first one with its number of query heads", lambda case: case.heads_q),
    ("the first one with its number of kv heads", lambda case: case.heads_kv),
    ("the first one with its number of sequences", lambda case: _sequences(case)),
    ("the first one with its number of rows", lambda case: case.seq_q),
    ("the first one with its number of keys", lambda case: case.seq_k),
    ("the first one with its launch parameters", lambda case: case.launch),
)
"""Keys under which the first call is kept, in words, and as a function of the case."""


def _never(_: Case) -> bool:
    return False


def _sequences(case: Case) -> int:
    return case.batch if case.mask.packed is None else len(case.mask.packed.lengths())


@dataclasses.dataclass(slots=True)
class _Thing:
    """One thing, and the calls that have it.

    Attributes:
        candidate: what a call returns that has it of another one.
        keys: under which the first calls explain all scenes so far.
        shown: these scenes.
    """

    candidate: Candidate
    keys: list[tuple[str, _Key]]
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
    scene = _looked(subject, case) if before and work(case) <= _LARGEST else None
    if scene is None or not scene.failures:
        return None
    has = _HAS | (_FEW_VALUES if certain else {})
    made: dict[Case, Problem] = {}
    things = list(_fitting_things(subject, scene, before, has, made, end))
    if not things and (larger := _looked(subject, next(_cases(subject, case, ""), case))) is not None:
        # a small case may have rows whose values no other problem says
        things = list(_fitting_things(subject, larger, before, has, made, end)) if larger.failures else []
    for thing in things:
        first = _first(before, thing.candidate.name, thing.keys[0][1], scene.case, has)
        if not certain and first is not None and _USUAL.get(thing.candidate.name, _never)(first):
            continue
        for each in _cases(subject, case, thing.candidate.name):
            if end.over:
                break
            other = _looked(subject, each)
            if other is None or not _agrees(subject, thing, other, before, has, made) or len(thing.shown) == _NEEDED:
                break
        if len(thing.shown) == _NEEDED and thing.keys:
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
        keys: dict[Case, list[tuple[str, _Key]]] = {}
        for words, key in _KEYS:
            if (first := _first(before, candidate.name, key, scene.case, has)) is not None:
                keys.setdefault(first, []).append((words, key))
        for first, alike in keys.items():
            if end.over:
                return
            scope = next((s for s in scopes if _explains(subject, candidate, first, scene, s, made)), None)
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
    left: list[tuple[str, _Key]] = []
    known: dict[Case, bool] = {}
    for words, key in thing.keys:
        first = _first(before, thing.candidate.name, key, scene.case, has)
        if first is None:
            continue
        if first not in known:
            known[first] = _explains(subject, thing.candidate, first, scene, thing.scope, made)
        if known[first]:
            left.append((words, key))
    thing.keys = left
    thing.shown.append(scene)
    return bool(left)


def _first(
    before: tuple[Case, ...], name: str, key: _Key, case: Case, has: dict[str, Callable[[Case], bool]]
) -> Case | None:
    return next((each for each in before if has[name](each) and key(each) == key(case)), None)


def _explains(
    subject: Subject, candidate: Candidate, first: Case, scene: Scene, scope: frozenset[str], made: dict[Case, Problem]
) -> bool:
    if work(first) > _LARGEST:
        return False
    if first not in made:
        made[first] = materialize(first, subject.device())[0]
    earlier = dataclasses.replace(scene, problem=made[first], memo={}, known={})
    scene.memo.pop(("kept", candidate.name), None)  # what was made of another first call
    called = Called(
        pair=Pair("another thing", first, scene.case), way=Way.APART, earlier=earlier, later=scene, strided={}
    )
    return bool(fitting((candidate,), subject, called, scope))


def _cases(subject: Subject, case: Case, name: str) -> Iterator[Case]:
    """Cases with other seeds and sizes, every second one with another such thing where that is a setting."""
    plain = dataclasses.replace(case, storage=dataclasses.replace(case.storage, padding="zero"))
    for turn, (rows, keys) in enumerate(_GROWN):
        for more in ((rows, keys), (0, 0)):
            found = grown(plain, *more, regime="normal", seed=13 * turn + 500)
            if found is None or work(found) > _LARGEST or subject.supports.refusal(found) is not None:
                continue
            others = [each for each in settings_of(found) if _of_thing(name, each[0])]
            if turn % 2 == 0 and others and subject.supports.refusal(others[0][1]) is None:
                found = others[0][1]
            yield found
            break


def _of_thing(name: str, words: str) -> bool:
    """Whether the words of a changed setting are about the thing."""
    return words == ("another probability of dropout" if name == "dropout" else f"another {name.partition('-')[0]}")


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
