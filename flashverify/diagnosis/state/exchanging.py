"""A call that has the thing of another call, and whether the thing of any call at all would explain it as well."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.mask import drawn_anew
from flashverify.case.memory.materialize import materialize
from flashverify.checks.reuse.neighbours import settings_of
from flashverify.diagnosis.state.calling import Called, Way
from flashverify.diagnosis.state.candidates import fitting
from flashverify.diagnosis.state.first_keys import first_with
from flashverify.diagnosis.state.pairs import Pair, lengths_of
from flashverify.diagnosis.trials import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.state.candidates import Candidate
    from flashverify.diagnosis.state.first_keys import Key
    from flashverify.subjects.interface import Subject

__all__ = ["LARGEST_FIRST", "explains", "is_peculiar", "of_thing"]

LARGEST_FIRST = 20_000
"""Pairs of a first call whose tensors are made, and of a case that is asked."""
_OTHERS, _SEEDS = 8, (1, 2, 3)
"""Other things that are tried of each scene, and numbers by which some of them are drawn."""


def explains(
    subject: Subject, candidate: Candidate, first: Case, scene: Scene, scope: frozenset[str], made: dict[Case, Problem]
) -> bool:
    """Whether a call that has the thing of the call `first` returns what `scene` did, in the outputs of `scope`; `made` keeps problems."""
    if work(first) > LARGEST_FIRST:
        return False
    if first not in made:
        made[first] = materialize(first, subject.device())[0]
    earlier = dataclasses.replace(scene, problem=made[first], memo={}, known={})
    scene.memo.pop(("kept", candidate.name), None)  # what was made of another first call
    called = Called(
        pair=Pair("another thing", first, scene.case), way=Way.APART, earlier=earlier, later=scene, strided={}
    )
    return bool(fitting((candidate,), subject, called, scope))


def is_peculiar(
    subject: Subject,
    candidate: Candidate,
    key: Key,
    scope: frozenset[str],
    shown: list[Scene],
    before: tuple[Case, ...],
    has: dict[str, Callable[[Case], bool]],
    made: dict[Case, Problem],
) -> bool:
    """Whether the thing of another call than the first one with its key does not explain every scene `shown` as well.

    A kernel that keeps nothing may compute as almost any thing would make it: where a row has no live block, one that takes it for dense
    computes by any pattern that has one.
    """
    name = candidate.name
    for scene in shown:
        first = first_with(before, name, key, scene.case, has)
        others = (
            each
            for each in _with_another(scene.case, before, name, has)
            if each not in (first, scene.case) and work(each) <= LARGEST_FIRST
        )
        for other in islice(others, _OTHERS):
            explained = explains(subject, candidate, other, scene, scope, made)
            if not explained and _is_another(scene, scene.memo.get(("kept", name))):
                return True
    return False


def _is_another(scene: Scene, expected: Expectations | None) -> bool:
    """Whether other values are expected than by the thing of the scene itself."""
    return expected is not None and not all(
        torch.equal(x.value.nan_to_num(), scene.right[name].value.nan_to_num()) for name, x in expected.items()
    )


def _with_another(
    case: Case, before: tuple[Case, ...], name: str, has: dict[str, Callable[[Case], bool]]
) -> Iterator[Case]:
    """Cases like this one with another such thing, and other calls that have one."""
    yield from (each for words, each in settings_of(case) if of_thing(name, words))
    for seed in _SEEDS:
        values = dataclasses.replace(case.values, seed=case.values.seed + seed, edits=())
        yield dataclasses.replace(case, mask=drawn_anew(case.mask, case.values.seed + seed), values=values)
    yield from (each for _, each in lengths_of(case))
    yield from (each for each in before if has[name](each))


def of_thing(name: str, words: str) -> bool:
    """Whether the words of a changed setting are about the thing."""
    return words == ("another probability of dropout" if name == "dropout" else f"another {name.partition('-')[0]}")
