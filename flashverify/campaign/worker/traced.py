"""Subjects that torch traces: a worker draws from kinds of cases that it has compiled itself, and opens more of them at a pace.

What torch traced lives in the process that traced it. So each worker has kinds of its own, and no other process compiles for it; the code
that comes out is in torch's cache on the disk, for all workers and for later searches.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

from flashverify.campaign.ahead import ahead_of
from flashverify.campaign.protocol import PutOff
from flashverify.campaign.worker.trace_pace import TracePace
from flashverify.case.text import format_case
from flashverify.launching.compilations import NotCompiled
from flashverify.launching.traces import traces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.protocol import Batch, Chunk
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult

__all__ = ["TracedKinds", "judge_listed", "traced_kinds"]

_EXAMPLES = 6
"""Cases of a kind of which the longest opens it."""
_TRIED = 5
"""Kinds in a row of which a case is looked for; the subject may refuse all of some."""


def traced_kinds(session: Session, spec: str) -> TracedKinds:
    """The kinds of a subject in this worker."""
    return session.traced.setdefault(spec, TracedKinds(session, spec))


def judge_listed(session: Session, task: Chunk, case: Case) -> CaseResult:
    """Judges a case of a list, in a sparing task without checks that torch would compile too much for."""
    spared = traced_kinds(session, task.subject).judge(case, opening=True) if task.sparing else None
    return spared or session.judge(task.subject, case, task.plan)


class TracedKinds:
    """The kinds of one subject in one worker.

    Args:
        session: of the worker.
        spec: of the subject.

    Attributes:
        kinds: those that are drawn from.
    """

    def __init__(self, session: Session, spec: str) -> None:
        self._session, self._spec = session, spec
        self._begun, self._pace = time.monotonic(), TracePace()
        self._opening = False
        self.kinds: list[int] = []

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._begun

    def cases(self, task: Batch, count: int) -> Iterator[Case]:
        """Different cases of a batch: where one more kind may be opened, one of that first, and then cases of all kinds that are open."""
        from flashverify.campaign.worker.search import draw, fresh

        toolkit, subject = ahead_of(self._session.toolkit), self._session.subject(self._spec)
        self._opening = False
        if self._pace.may_open(self._elapsed):
            for kind in self._unopened(task.number, toolkit.traced(subject)):
                if examples := draw(toolkit.of_kinds(subject, (kind,)), _EXAMPLES, task.seed):
                    yield self._first(kind, examples)
                    self._opening = False
                    break
        if self.kinds:  # without the simplest case of all: lengths of 1 are compiled apart
            yield from islice(fresh(toolkit.of_kinds(subject, tuple(self.kinds)), count + 1, task.seed), 1, None)

    def _first(self, kind: int, examples: tuple[Case, ...]) -> Case:
        """The case that opens a kind: the longest, since lengths of 1 and of one block are compiled apart."""
        self._opening = True
        self._pace.opened += 1
        self._session.opened += 1
        self.kinds.append(kind)
        return max(examples, key=lambda case: min(case.seq_q, case.seq_k))

    def _unopened(self, number: int, total: int) -> list[int]:
        """Kinds that are not open: some that follow the one of that number in the list, round and round."""
        known = set(self.kinds)
        return list(islice((kind for i in range(total) if (kind := (number + i) % total) not in known), _TRIED))

    def drawn(self, case: Case) -> CaseResult | None:
        """Judges a case of `cases`, or leaves it where torch would have to compile for it and may not, which gives None."""
        return self.judge(case, opening=self._opening)

    def judge(self, case: Case, *, opening: bool) -> CaseResult | None:
        """Judges a case; checks for which torch would have to compile more than it may are left out.

        Args:
            case: the problem.
            opening: whether torch may compile for its first call in any event. Otherwise the case is left where it may not: None.
        """
        try:
            return self._judged(case, opening=opening)
        except NotCompiled:
            if opening:  # its first call asks for more than one compilation, as one with graph breaks does
                return self._judged(case, opening=True, whole=True)
            self._session.clear()
            self._session.emit(PutOff(self._spec, format_case(case), left=True))
            return None

    def _judged(self, case: Case, *, opening: bool, whole: bool = False) -> CaseResult:
        """Judges a case; `whole` lets torch compile whatever it asks for.

        Raises:
            NotCompiled: torch may not compile for its first call.
        """
        begun, mine, first = traces.seconds, opening, opening

        def allowed() -> bool:
            nonlocal begun, mine, first
            self._pace.spend(traces.seconds - begun, opening=mine)
            begun, mine, first = traces.seconds, first or whole, False
            return mine or self._pace.may_grow(self._elapsed)

        try:
            with traces.only_where(allowed):
                return self._session.judge(self._spec, case, "fuzz")
        finally:
            self._pace.spend(traces.seconds - begun, opening=mine)
