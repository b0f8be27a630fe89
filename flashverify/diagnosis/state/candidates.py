"""What the later of two calls may have kept of the earlier one, and what each of these makes it return."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.expected import Expected, explains
from flashverify.diagnosis.observe import seen
from flashverify.diagnosis.state.intermediates import INTERMEDIATES
from flashverify.diagnosis.state.layouts import stored_by_strides
from flashverify.diagnosis.state.numbers import as_few_parts, as_many_keys, offset_alone, parts_left_over, seed_alone
from flashverify.diagnosis.state.things import SEVERAL, THINGS
from flashverify.formats import FORMATS
from flashverify.outputs import output

if TYPE_CHECKING:
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.state.calling import Called
    from flashverify.diagnosis.state.things import Thing
    from flashverify.subjects.interface import Subject

__all__ = ["CANDIDATES", "KEPT", "Candidate", "fitting"]

Expects = Callable[["Subject", "Called"], "Expectations | None"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that may be kept.

    Attributes:
        name: without `stale-`; an output's name is added where `of_outputs`.
        sentence: `{outputs}`, `{holds}` and `{alike}` are put in, the last for what both calls have alike; no full stop.
        expects: what the later call then returns; None where it would be the same, or cannot be told.
        of_outputs: it is about the outputs that fail, whichever they are.
    """

    name: str
    sentence: str
    expects: Expects
    of_outputs: bool = False


def fitting(
    candidates: tuple[Candidate, ...], subject: Subject, called: Called, scope: frozenset[str]
) -> list[Candidate]:
    """The candidates that make the later call return what it did, and whose bounds are small beside an error.

    Args:
        candidates: that are tried.
        subject: the kernel under test.
        called: both calls.
        scope: outputs of which those that fail are to be explained; where none of them fails nothing fits.
    """
    return [candidate for candidate in candidates if _fits(candidate, subject, called, scope)]


def _fits(candidate: Candidate, subject: Subject, called: Called, scope: frozenset[str]) -> bool:
    later = called.later
    failing = {name: wrong for name, wrong in later.failures.items() if name in scope}
    if not failing:
        return False
    key = ("kept", candidate.name)
    if key not in later.memo:
        later.memo[key] = candidate.expects(subject, called)
    expected: Expectations | None = later.memo[key]
    if expected is None or not failing.keys() <= expected.keys():
        return False
    got, free, right = later.outputs, later.free, later.right
    if not all(bool(expected[name].holds(got[name], free.get(name)).all()) for name in failing):
        return False
    return any(explains(expected[name], right[name], got[name], wrong, clearly=True) for name, wrong in failing.items())


def _with(thing: Thing) -> Candidate:
    """The later problem with one thing of the earlier one."""

    def expects(subject: Subject, called: Called) -> Expectations | None:
        problem = thing.put(called.later.problem, called.earlier.problem)
        return None if problem is None else _of(subject, called, problem)

    kept = "they are" if thing.plural else "it is"
    sentence = (
        f"the second call computes with the {thing.words} of the first ({{alike}}): {kept} kept from call to call"
    )
    return Candidate(thing.name, sentence, expects)


def _of(subject: Subject, called: Called, problem: object) -> Expectations | None:
    """What the later call returns if `problem` is what it computed."""
    scene = seen(subject, problem, called.later.execution)  # type: ignore[arg-type]
    if scene is None:
        return None
    return {name: dataclasses.replace(x, strict=None) for name, x in scene.right.items()}


def _strides(subject: Subject, called: Called) -> Expectations | None:
    """Every tensor, or the first one that alone explains it, read by the strides of the earlier call."""
    found = called.strided
    for names in (tuple(found), *((name,) for name in found)):
        if not names:
            continue
        problem = dataclasses.replace(called.later.problem, **{name: found[name] for name in names})  # type: ignore[arg-type]
        expected = _of(subject, called, problem)
        for each in () if expected is None else (expected, stored_by_strides(called, expected)):
            if _holds(called, each):
                return each
    return None


def _dtype(subject: Subject, called: Called) -> Expectations | None:
    """Outputs, and perhaps operands, in the dtype of the earlier call; every output that fails is one of its numbers."""
    mine, other = called.later.problem, called.earlier.problem
    dtype = other.q.dtype
    if mine.q.dtype == dtype:
        return None
    outputs = {name: called.later.outputs[name] for name in called.later.failures if output(name).dtype == "case"}
    if not outputs or not all(bool((x.to(dtype).double() == x)[torch.isfinite(x)].all()) for x in outputs.values()):
        return None
    case = dataclasses.replace(mine.case, dtype=other.case.dtype, precision=other.case.precision)
    for names in ((), ("q", "k", "v", "do"), ("v",), ("q",), ("k",)):
        given = {name: x.to(dtype).to(x.dtype) for name in names if (x := getattr(mine, name)) is not None}
        expected = _of(subject, called, dataclasses.replace(mine, case=case, **given))
        if expected is not None and _holds(called, expected):
            return {name: _told(x) for name, x in expected.items()}
    return None


def _told(expected: Expected) -> Expected:
    """The same; that every number is one of the narrower dtype tells more than a bound does."""
    return dataclasses.replace(expected, anything=torch.ones_like(expected.value, dtype=torch.bool))


def _holds(called: Called, expected: Expectations) -> bool:
    later = called.later
    return all(
        name in expected and bool(expected[name].holds(later.outputs[name], later.free.get(name)).all())
        for name in later.failures
    )


def _kept(called: Called, *, whole: bool) -> Expectations | None:
    """The earlier call's outputs, bit for bit; of each output all elements, or those that are wrong."""
    found: Expectations = {}
    for name, wrong in called.later.failures.items():
        value = _in_shape(called, name)
        got = called.later.outputs[name]
        if value is None or not bool((value[wrong] != 0).any()):  # nothing but 0 is what any empty buffer holds
            continue
        same = (value == got) | (value.isnan() & got.isnan())
        free = called.later.free.get(name)
        if whole and not bool((same if free is None else same | free).all()):
            continue
        nothing = torch.zeros_like(wrong)
        lost = wrong & value.isnan()
        exact = Expected(value=value, total=torch.zeros_like(value), overflow=nothing, nan=lost)
        found[name] = exact if whole else exact.within(wrong, called.later.right[name])
    return found


def _in_shape(called: Called, name: str) -> torch.Tensor | None:
    """An output of the earlier call in the shape of the later one, its first elements in memory where it was larger."""
    got, value = called.later.outputs[name], called.earlier.outputs.get(name)
    if value is None or value.shape == got.shape:
        return value
    return value.flatten()[: got.numel()].view_as(got) if value.numel() > got.numel() else None


def _added(_: Subject, called: Called) -> Expectations | None:
    """The outputs that fail, each the sum of both calls'."""
    found: Expectations = {}
    for name in called.later.failures:
        value, right = called.earlier.outputs.get(name), called.later.declared((name,))[name]
        if value is None or value.shape != right.value.shape or not bool(value.isfinite().all()):
            continue
        u = FORMATS[output(name).dtype_of(called.later.case.dtype)].u
        total = right.total + 4 * u * (right.value.abs() + value.abs())
        found[name] = dataclasses.replace(right, value=right.value + value, total=total, zero=None)
    return found


SINGLE = (
    Candidate(
        "output",
        "the second call returns {outputs} of the first",
        lambda _, called: _kept(called, whole=True),
        of_outputs=True,
    ),
    Candidate(
        "added",
        "the {outputs} of the second call {holds} those of the first, added",
        _added,
        of_outputs=True,
    ),
    *map(_with, THINGS),
    *(Candidate(each.name, each.sentence, each.expects) for each in INTERMEDIATES),
    Candidate(
        "strides",
        "the second call accesses its tensors by the strides of the first: they are kept from call to call",
        _strides,
    ),
    Candidate(
        "keys",
        "the second call sees no more keys than the first has: their number is kept from call to call",
        as_many_keys,
    ),
    Candidate(
        "dropout-seed-alone",
        "the second call draws dropout by the seed of the first ({alike}) and its own offset: it is kept from call to call",
        seed_alone,
    ),
    Candidate(
        "dropout-offset",
        "the second call draws dropout by the offset of the first ({alike}) and its own seed: it is kept from call to call",
        offset_alone,
    ),
    Candidate(
        "splits",
        "the second call merges as many partial results as the first has ({alike}), so that its last ones are lost: their number is kept from call to call",
        as_few_parts,
    ),
    Candidate(
        "parts",
        "the second call merges partial results that the first left behind its own ones ({alike}): their buffer is kept from call to call",
        parts_left_over,
    ),
    Candidate("dtype", "the second call computes in the dtype of the first: it is kept from call to call", _dtype),
)
CANDIDATES = (
    SINGLE,
    (
        *map(_with, SEVERAL),
        Candidate(
            "elements",
            "the wrong elements of {outputs} are those of the first call at the same places: the second one does not write them",
            lambda _, called: _kept(called, whole=False),
            of_outputs=True,
        ),
    ),
)
"""In the order in which they are tried: of a later group only where none of the earlier ones fits."""

KEPT = tuple(f"stale-{each.name}" for group in CANDIDATES for each in group if not each.of_outputs)
"""The names that a diagnosis may give, but for those that end with the outputs."""
