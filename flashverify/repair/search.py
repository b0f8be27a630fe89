"""The change of one place in a subject's source that makes it right."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from flashverify.repair.bench import bench
from flashverify.repair.described import described
from flashverify.repair.judges import Judges
from flashverify.repair.pool import Pool, reward
from flashverify.repair.suspicion import suspects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case
    from flashverify.judge.record import Repair
    from flashverify.repair.bench import Effect
    from flashverify.repair.candidates import Candidate
    from flashverify.repair.pool import Unit
    from flashverify.subjects.interface import Subject

__all__ = ["repairs"]

_REPAIRS = 3
"""Places of which a repair is said, at most."""
_MORE, _LEAST = 0.8, 2.0
"""After the first repair others are looked for, for this share of the time that it took, and so many seconds at least."""
_ALIKE = 30
"""Edits that do the same on the failing case of which each is tried on the further ones."""


def repairs(
    subject: Subject,
    case: Case,
    *,
    first: Case | None = None,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Repair]:
    """Changes of one place each, after which the subject is right on `case` and on every further case that was tried, each as it is found.

    The source on disk is not touched: edited functions run in this process, in place of those of the subject, and are taken back. Only what
    the subject's own Python does is edited, kernels that are interpreted among it. An edit may do more than compute: see `confine`.

    Args:
        subject: the kernel under test.
        case: where it fails, the smaller the better.
        first: another case that fails likewise.
        seconds: by `clock`, after which no further edit is tried.
        clock: counts them.

    Yields:
        Repairs, at most one for a statement; none where no edit was found in time, or where the subject does not fail on `case` by a wrong
        value. Nothing is edited while one is handed out.

    Raises:
        Exception: whatever the subject raises on `case`.
    """
    begun = clock()
    found = bench(subject, case)
    if found is None:
        return
    pool, judges = Pool(found.execution, suspects(found), found.effect), Judges(subject, case, first)
    made, end = 0, begun + seconds
    while clock() < end and made < _REPAIRS:
        chosen = pool.next()
        if chosen is None:
            break
        statement, unit, candidate = chosen
        try:
            with pool.applied(unit, candidate):
                effect = found.effect()
        except SyntaxError:
            continue
        statement.rewards.append(reward(effect))
        right = _right(pool, judges, unit, candidate, effect)
        if right is not None:
            if not made:
                end = min(end, clock() + max(_LEAST, _MORE * (clock() - begun)))
            made += 1
            statement.left.clear()
            yield described(right, judges.cases, judges.failing)


def _right(pool: Pool, judges: Judges, unit: Unit, candidate: Candidate, effect: Effect | None) -> Candidate | None:
    """Of the edits that do what this one does on the failing case, the first one that is right on the further ones too."""
    for each in pool.alike(candidate)[:_ALIKE] if effect is not None and effect.repaired else ():
        try:
            if judges.all_right(partial(pool.applied, unit, each)):
                return each
        except SyntaxError:
            continue
    return None
