"""What a call has of the call before it, whatever its shapes: the same call is made after others that differ from it in one thing each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.case.memory.materialize import materialize
from flashverify.diagnosis.place import place_of
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.state.calling import after, repeated, returned
from flashverify.diagnosis.state.candidates import CANDIDATES, Candidate, fitting
from flashverify.diagnosis.state.pairs import Pair
from flashverify.diagnosis.state.primers import OTHER_VALUES, primers
from flashverify.diagnosis.state.what_then import computed_then
from flashverify.diagnosis.state.wording import BEFORE, IN_TURN, joined, listed, name_of, said, sentence
from flashverify.judge.record import Diagnosis
from flashverify.outputs import KERNELS, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.clock import End
    from flashverify.diagnosis.state.calling import After
    from flashverify.subjects.interface import Subject

__all__ = ["follows_another", "of_the_call_before"]

_NEEDED = 3
"""Calls that a name must explain, or that must be wrong after others of one kind."""
_CALLS = 7
"""Calls of one problem, one after the other, in which a period of 2 or 3 shows twice."""
_PERIODS = (2, 3)
_SMALL = {"seq_q": 5, "seq_k": 21, "dim_qk": 16, "dim_v": 16}
_GROWN = ((0, 0), (3, 5), (0, 9), (6, 2), (0, 0), (9, 14))
"""Rows and keys that are added to the case, of which the small ones are tried first."""
_COUNTED, _AT_ONCE = 2, 3
"""Cases whose calls are counted, and calls that are made without others in between before others are."""
_EXPLAINED, _LEAST = 3, 1.5
"""Wrong calls that a semantics must explain to be said, and the seconds in which one is looked for, at least."""
_NUMBERS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_BEFORE = "the call before it"


@dataclass(slots=True)
class _Kind:
    """Calls after others that differ from them in one thing.

    Attributes:
        wrong: those that are wrong though they are right without the other call.
        right: how many were right.
        scope, candidates, shown: what explains outputs on each of the calls `shown`.
    """

    wrong: list[After] = field(default_factory=list)
    right: int = 0
    scope: frozenset[str] = frozenset()
    candidates: list[Candidate] = field(default_factory=list)
    shown: list[After] = field(default_factory=list)


def follows_another(subject: Subject, case: Case, end: End) -> str | None:
    """After which call the outputs of a problem are others: one that is made in between, with one thing more or another one.

    Args:
        subject: the kernel under test, whose equal calls give equal bits.
        case: the problem.
        end: after which no further call is made.

    Returns:
        What the call in between differs in, as `primers` say it; empty where equal calls alone differ; None where there is none.
    """
    if not subject.contract.deterministic:
        return None
    device = subject.device()
    for base in islice(_bases(subject, case), 2):
        problem, _ = materialize(base, device)
        before = [returned(subject, problem) for _ in range(_AT_ONCE)]
        if not _equal(before):
            return ""
        for what, other in primers(subject, base, 0):
            if end.over:
                return None
            returned(subject, materialize(other, device)[0])
            if not _equal([before[0], returned(subject, problem)]):
                return what
    return None


def of_the_call_before(subject: Subject, case: Case, end: End, *, likely: str | None = None) -> Diagnosis | None:
    """Names what a call computes with of the call before it; otherwise says after which calls it is wrong. None where it is wrong after none, or always.

    A call that is right after a call like itself, and wrong after one that differs in one thing alone, has that thing of it.

    Args:
        subject: the kernel under test.
        case: where it fails.
        end: after which no further call is made.
        likely: what `follows_another` returned: such calls are made first.
    """
    found: dict[str, _Kind] = {}
    for turn, base in enumerate(_bases(subject, case)):
        every = _every_so_many(subject, base, end) if turn < _COUNTED and not likely else None
        if every is not None:
            return every
        known = {what for what, kind in found.items() if kind.candidates}
        for what, other in sorted(primers(subject, base, turn), key=lambda each: each[0] != likely):
            if end.over:
                return _of_kinds(found, end)
            if known and what not in known:
                continue
            kind = found.setdefault(what, _Kind())
            each = after(subject, Pair(what, other, base))
            if each is None:
                continue
            _add(subject, kind, each)
            if len(kind.shown) == _NEEDED and kind.candidates:
                return _named(what, kind)
            if len(kind.shown) == 1 and not known:
                break  # the same on a case of another size
    return _of_kinds(found, end)


def _bases(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases with normal values and no padding but zeros: a small one, then those of other sizes that are like the case."""
    plain = dataclasses.replace(case, storage=dataclasses.replace(case.storage, padding="zero"))
    small = change(plain, **{name: min(getattr(case, name), most) for name, most in _SMALL.items()})
    for turn, (rows, keys) in enumerate(_GROWN):
        for start in dict.fromkeys((small or plain, plain)):
            found = grown(start, rows, keys, regime="normal", seed=7 * turn + 300)
            if found is not None and subject.supports.refusal(found) is None:
                yield found


def _equal(found: list[dict[str, Tensor]]) -> bool:
    """Whether all calls returned the same bits, as far as they returned anything."""
    return all(_same(x, each[name]) for each in found for name, x in found[0].items() if name in each)


def _same(x: Tensor, y: Tensor) -> bool:
    return bool(((x == y) | (x.isnan() & y.isnan())).all())


def _add(subject: Subject, kind: _Kind, each: After) -> None:
    """Counts a call that came after another one, and what explains it."""
    if not each.called.later.failures:
        kind.right += 1
        return
    if not (each.again.failures and each.before.failures):
        kind.wrong.append(each)
    if not kind.shown:
        for scope in map(frozenset, (OUTPUTS, *KERNELS)):
            for group in CANDIDATES:
                if fits := _fitting(group, subject, each, scope):
                    kind.scope, kind.candidates, kind.shown = scope, fits, [each]
                    return
    elif kind.candidates:
        kind.candidates = _fitting(tuple(kind.candidates), subject, each, kind.scope)
        kind.shown.append(each)


def _fitting(
    candidates: tuple[Candidate, ...], subject: Subject, each: After, scope: frozenset[str]
) -> list[Candidate]:
    """The candidates that explain the later call and do not explain the same call without the earlier one."""
    found = fitting(candidates, subject, each.called, scope)
    if not found or not (each.again.failures and each.before.failures):
        return found
    without = dataclasses.replace(each.called, later=each.before)
    explained = fitting(tuple(found), subject, without, scope)
    return [candidate for candidate in found if candidate not in explained]


def _named(what: str, kind: _Kind) -> Diagnosis:
    first, *others = kind.candidates
    shown = kind.shown[0]
    failing = [name for name in OUTPUTS if any(name in each.called.later.failures for each in kind.shown)]
    outputs = [name for name in failing if name in kind.scope]
    right = not shown.again.failures
    alike = _BEFORE if right else "the last one that had such a thing"
    words = [sentence(said(first, outputs, alike))]
    if others:
        also = " or ".join(said(other, outputs, alike) for other in others)
        words.append(f"Every call tried is consistent with this as well: {also}.")
    if right:
        words.append(f"It shows after a call with {what}; asked once more, the same call is right.")
    else:
        words.append(f"It shows after a call with {what}, and stays.")
    rest = "" if outputs == failing else "; other outputs are wrong in another way"
    return Diagnosis(
        name_of(first, outputs),
        " ".join(words),
        tuple(name_of(other, outputs) for other in others),
        place_of(shown.called.later, shown.called.later.failures, outputs[0]),
        evidence=f"It explains {len(kind.shown)} calls, each right or otherwise wrong without the call before, each clearly{rest}.",
    )


def _of_kinds(found: dict[str, _Kind], end: End) -> Diagnosis | None:
    """After which calls a call is wrong, and after which it is right."""
    wrong = {what: kind for what, kind in found.items() if kind.wrong and not kind.right}
    if OTHER_VALUES in wrong:  # which all others have too
        wrong = {OTHER_VALUES: wrong[OTHER_VALUES]}
    count = sum(len(kind.wrong) for kind in wrong.values())
    if count < _NEEDED:
        return None
    right = [what for what, kind in found.items() if kind.right and not kind.wrong]
    shown = next(iter(wrong.values())).wrong[0].called.later
    outputs = [name for name in OUTPUTS if name in shown.failures]
    words = f"{joined(outputs)} of a call {'depends' if len(outputs) == 1 else 'depend'} {BEFORE}: wrong after one with {listed(list(wrong), 'or')}"
    if right:
        words += f", right after one with {listed(right, 'or')}"
    reading = sentence(f"{words}, and after the same call")
    calls = [each.called.later for kind in wrong.values() for each in kind.wrong]
    then = computed_then(calls[:_EXPLAINED], end.after(_LEAST))
    return Diagnosis(
        sentence=f"{reading} {f'Then it computes so: {then}.' if then else 'What it computes with then was not found.'}",
        place=place_of(shown, shown.failures, outputs[0]),
        evidence=f"{count} calls of several sizes are wrong so, each right without the call before.",
        reading=reading,
    )


def _every_so_many(subject: Subject, case: Case, end: End) -> Diagnosis | None:
    """That every second or third call of one problem is wrong, whatever was called before, and what these compute."""
    scenes = repeated(subject, case, _CALLS)
    wrong = [bool(each.failures) for each in scenes]
    for period, start in ((p, s) for p in _PERIODS for s in range(p) if any(wrong)):
        if wrong != [n % period == start for n in range(_CALLS)]:
            continue
        scene = scenes[start]
        outputs = [name for name in OUTPUTS if name in scene.failures]
        times = listed([_NUMBERS[n + 1] for n in range(_CALLS) if wrong[n]], "and")
        reading = f"Of {_CALLS} {IN_TURN}, the {times} are wrong in {joined(outputs)}: every {_NUMBERS[period]} one."
        other = grown(case, 3, 5, regime="normal", seed=case.values.seed + 1)
        more = [] if other is None else [each for each in repeated(subject, other, period) if each.failures]
        then = computed_then([scene, *more[:1]], end.after(_LEAST))
        told = f" The wrong ones compute so: {then}." if then else ""
        return Diagnosis(
            sentence=f"{reading} What is counted, or used in turn, is kept from call to call.{told}",
            place=place_of(scene, scene.failures, outputs[0]),
            evidence=f"The same problem was asked {_CALLS} times.",
            reading=reading,
        )
    return None
