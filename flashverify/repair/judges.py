"""Further cases on which a repair must be right."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flashverify.diagnosis.neighbours import neighbours
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.related_cases import variants
from flashverify.diagnosis.trials import work
from flashverify.repair.bench import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["Judges"]

_Seen = tuple[bool | None, frozenset[tuple[str, str]]]

_DRAWN, _EACH = 54, 2
"""Cases that are drawn; of these, in the order of their size, one in so many is run at first."""
_FAILING = 6
"""Cases that must fail without the repair, if so many of those that were drawn do."""
_LARGE = 1 << 13
"""Pairs of rows and keys, over all heads, of the largest case."""
_LIMIT = 5.0
"""Seconds that one case may take."""


class Judges:
    """Cases on which a repair is tried; those that refuted one come first.

    Args:
        subject: as it is, without a repair.
        case: the failing case.
        first: another one that fails likewise.

    Attributes:
        cases: on which the last repair that was right on all of them was tried.
        failing: how many of these fail without it.
    """

    def __init__(self, subject: Subject, case: Case, first: Case | None) -> None:
        self._subject = subject
        drawn = sorted(islice(_cases(subject, case), _DRAWN), key=work)
        self._asked, self._more = drawn[::_EACH], drawn[1::_EACH]
        if first is not None and first != case and work(first) <= LARGEST:
            self._asked.append(first)
        self._unedited: dict[Case, _Seen] = {}
        self.cases = self.failing = 0

    def all_right(self, applied: Callable[[], AbstractContextManager[None]]) -> bool:
        """Whether an edit makes the subject right on all cases that it runs without the edit, and no access of memory is reported that was not before.

        Args:
            applied: puts the edit in place for a block.

        Raises:
            SyntaxError: the edit makes no Python.
        """
        if not self._right(self._asked, applied):
            return False
        while sum(self._fails_without(case) is True for case in self._asked) < _FAILING and self._more:
            more, self._more = self._more[:_FAILING], self._more[_FAILING:]
            self._asked += more
            if not self._right(more, applied):
                return False
        self.cases = len(self._asked)
        self.failing = sum(self._fails_without(case) is True for case in self._asked)
        return self.failing > 0

    def _right(self, cases: list[Case], applied: Callable[[], AbstractContextManager[None]]) -> bool:
        for case in list(cases):
            with applied():
                wrong, accesses = self._seen(case)
            if wrong is False and (not accesses or accesses <= self._without(case)[1]):
                continue
            if wrong is None and self._fails_without(case) is None:
                self._asked.remove(case)  # it tells nothing of the edit
                continue
            self._asked.remove(case)
            self._asked.insert(0, case)
            return False
        return True

    def _fails_without(self, case: Case) -> bool | None:
        return self._without(case)[0]

    def _without(self, case: Case) -> _Seen:
        if case not in self._unedited:
            self._unedited[case] = self._seen(case)
        return self._unedited[case]

    def _seen(self, case: Case) -> _Seen:
        """Whether the subject as it is now fails on a case, and which accesses of memory are reported of it.

        None where it raises, or nothing can be compared.
        """
        try:
            with within(_LIMIT):
                scene = look(self._subject, case)
        except Exception:
            return None, frozenset()
        if scene is None:
            return None, frozenset()
        run = scene.execution
        reports = () if run.watch is None else run.watch.reports.values()
        accesses = {(each.kind, each.argument or "") for each in reports} | {
            (each.kind, each.tensor) for each in run.damage
        }
        return bool(scene.failures), frozenset(accesses)


def _cases(subject: Subject, case: Case) -> Iterator[Case]:
    """Cases near the failing one, and like it with other sizes and values, in turns; none twice."""
    seen = {case}
    open_ = [variants(subject, case), neighbours(subject.supports, case)]
    while open_:
        for each in list(open_):
            found = next(each, None)
            if found is None:
                open_.remove(each)
            elif found not in seen and work(found) <= _LARGE and subject.supports.refusal(found) is None:
                seen.add(found)
                yield found
