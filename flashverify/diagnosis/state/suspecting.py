"""Whether a failure is one of a later call, whatever check found it, and what is kept then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.state.advancing import advancing_draws
from flashverify.diagnosis.state.calling import Way, called
from flashverify.diagnosis.state.first_things import of_the_first_call
from flashverify.diagnosis.state.following import follows_another, of_the_call_before
from flashverify.diagnosis.state.for_good import draws_of_the_first_call
from flashverify.diagnosis.state.naming import kept_from_earlier
from flashverify.diagnosis.state.pairs import fresh_number, pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.case.case import Case
    from flashverify.diagnosis.clock import Clock, End
    from flashverify.judge.record import Diagnosis
    from flashverify.subjects.interface import Subject

__all__ = ["kept_from_any", "of_a_later_call", "suspected"]

_KINDS = ("lengths", "values", "settings", "launch", "sizes")
_SUSPECTING = 2
"""Sizes of pairs, each of which shows a second call that is wrong after a right one: by chance one may."""
_FURTHER = 2
"""Sizes that are asked besides where one of them shows that."""
_FIRST_LOOK = 0.3
"""Share of the time for that where it is known that a failure is one of a later call."""
_LOOKING, _NAMING = 0.1, 0.3
"""Shares of the time of a diagnosis to see whether a failure about values is one of a later call, and to name what it keeps."""


def suspected(subject: Subject, case: Case, end: End, *, wide: bool = False) -> str:
    """In what two problems differ of which the second is wrong at the addresses of the first and the first is right, for pairs of two sizes.

    Args:
        subject: the kernel under test.
        case: where it fails.
        end: after which no further pair is tried.
        wide: heads and channels are new too: what is kept may go by these alone.

    Returns:
        One of the kinds of `kinds_of`; empty where there is none.
    """
    for kind in _KINDS:
        asked: dict[tuple[int, int, int], bool] = {}
        wrong_first = 0
        number = fresh_number()  # what goes by the batch alone was not asked for another kind
        for pair in pairs(subject, case, kind, number, wide=wide):
            base = pair.later if pair.turned else pair.earlier
            size = base.batch, base.seq_q, base.seq_k
            most = _SUSPECTING + _FURTHER * any(asked.values())
            if (size not in asked and len(asked) == most) or end.over:
                break
            if asked.get(size, False):
                continue
            each = called(subject, pair, Way.HELD)
            if each is not None:
                asked[size] = bool(each.later.failures)
                if sum(asked.values()) == _SUSPECTING:
                    return kind
                continue
            wrong_first += 1
            if pair.earlier.batch != case.batch or wrong_first == _SUSPECTING:  # else it may be kept by the batch alone
                return ""
    return ""


def kept_from_any(subject: Subject, case: Case, error: str, number: int, end: End) -> Diagnosis | None:
    """What `kept_from_earlier` names, where no check says in what the calls differ: what a first look shows is asked first.

    Args:
        subject: the kernel under test.
        case: where it fails.
        error: the class of the failure, of whatever check.
        number: of the diagnosis, see `fresh_number`.
        end: after which no further pair is tried.
    """
    middle = end.part(_FIRST_LOOK)
    for wide in (False, True):
        if (kind := suspected(subject, case, middle, wide=wide)) and (
            found := kept_from_earlier(subject, case, kind, fresh_number(), end, wide=wide)
        ) is not None:
            return found
    return kept_from_earlier(subject, case, error, number, end)


def of_a_later_call(
    subject: Subject,
    case: Case,
    seconds: float,
    clock: Clock,
    first: Case | None = None,
    *,
    until: End | None = None,
    afresh: Callable[[], bool | None] = lambda: None,
) -> Diagnosis | None:
    """What is kept where a failure of any other check is one of a later call; None where it is not.

    A first call of another process that fails in the same way has nothing to keep: then only what a call has of the call before it is named,
    which is right without that, and draws that differ from call to call of one problem.

    Args:
        subject: the kernel under test.
        case: where it fails.
        seconds: of the whole diagnosis, of which a share is used.
        clock: that counts them.
        first: a case that fails likewise, whose parts may allow sizes that nobody asked before where those of `case` do not.
        until: after which no further call is made; None for what the shares of the time allow.
        afresh: whether a process whose first call this is fails in the same way; None where that is not known.
    """

    def part(share: float) -> End:
        return clock.end(share * seconds if until is None else min(share * seconds, until.left))

    def over() -> bool:
        return until is not None and until.over

    fails = afresh()
    end, alone = part(_LOOKING), fails is True
    if over():
        return None
    drawn = None if alone else draws_of_the_first_call(subject, case, end)
    if drawn is not None:
        return drawn
    if (advancing := advancing_draws(subject, case, end)) is not None:  # the first call may be at another number too
        return advancing
    certain = fails is False
    limit = part(_NAMING if certain else _LOOKING / 2)
    thing = None if alone or over() else of_the_first_call(subject, case, limit, certain=certain)
    if thing is not None or over():
        return thing
    found, end = None, part(_LOOKING)
    if (what := follows_another(subject, case, end)) is not None:
        found = of_the_call_before(subject, case, part(_NAMING), likely=what)
        if found is not None and found.name:
            return found
        end = part(_LOOKING)  # what goes by shapes may have a name
    if alone or over():
        return found
    end = max(end, part(_LOOKING / 2), key=lambda each: each.at)  # however long it took to see that
    for each in dict.fromkeys((case, first or case)):
        for wide in (False, True):
            if kind := suspected(subject, each, end, wide=wide):
                limit = part(_NAMING)
                kept = kept_from_earlier(subject, each, kind, fresh_number(), limit, wide=wide)
                return found if kept is None else kept
    return found
