"""Which cases of a search on a GPU are compiled, and what is compiled next.

Kinds of cases are compiled one after the other, in the order of a list of which each stretch is spread over all axes, so that the next
kind is what is covered least. Beside them wait the cases of the corpus, and drawn cases of kinds that are ready which ask for one kernel
more. Everything that is compiled is judged; cases that wait are bounded in number and those go whose pairs of traits are covered best.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.protocol import Chunk, Prepare
from flashverify.campaign.supervisor.batches import batch_seed
from flashverify.campaign.supervisor.compiled_cases import CompiledCases
from flashverify.campaign.supervisor.compiled_subject import CompiledSubject
from flashverify.campaign.supervisor.handed import Handed
from flashverify.campaign.supervisor.pace import Pace
from flashverify.campaign.supervisor.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.campaign.protocol import Prepared

__all__ = ["Readiness"]

_EXAMPLES = 8
"""Cases of a kind that are compiled before it is drawn from; of ten of them the first two ask for nearly every kernel."""
_LISTED = 2
"""Cases of the corpus in one task."""


class Readiness:
    """What is ready, waits, and is compiled next.

    Args:
        subjects: specs.
        seed: of the campaign.
        cases: those that are judged outside of batches; what a run that is resumed had put off waits again.
        known: kinds by the spec of their subject that an earlier search compiled. They are drawn from at once, and compiled in their
            turn all the same; where their kernels are gone, none of them counts as ready any more.

    Attributes:
        off: specs of subjects that launch no Triton kernel, or of which none can be compiled ahead; they are drawn freely.
        traced: specs of those among them that torch traces; workers draw what they have compiled themselves.
        dropped: drawn cases that had to go.
    """

    def __init__(
        self,
        subjects: tuple[str, ...],
        seed: int,
        cases: CompiledCases | None = None,
        known: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self._seed, self._cases = seed, CompiledCases({}) if cases is None else cases
        self._subjects = {spec: CompiledSubject() for spec in subjects}
        for spec, subject in self._subjects.items():
            subject.waiting = Waiting(self._cases.left_over(spec))
            subject.ready = list((known or {}).get(spec, ()))
            subject.supposed = set(subject.ready)
        self._order = deque(subjects)
        self._lists = Handed()
        self._chunks: deque[Chunk] = deque()
        self._pace = Pace()
        self.off: set[str] = set()
        self.traced: set[str] = set()
        self.put_off = self.dropped = 0

    @property
    def compiled(self) -> int:
        """Kernels that were compiled ahead."""
        return self._pace.compiled

    @property
    def ready(self) -> int:
        """Kinds that are drawn from, of all subjects."""
        return sum(len(each.ready) for each in self._subjects.values())

    @property
    def waiting(self) -> int:
        """Cases of the corpus and drawn ones that wait for a compiler, of all subjects."""
        return len(self._lists.spaced) + sum(len(each.listed) + len(each.waiting) for each in self._subjects.values())

    @property
    def lists_wait(self) -> bool:
        """Whether a case of the corpus waits for a compiler or a worker."""
        return bool(self._lists) or any(each.origins for each in self._subjects.values())

    def kinds(self, spec: str) -> tuple[int, ...] | None:
        """What a batch of a subject is drawn from; None is every kind, and an empty tuple nothing yet."""
        return None if spec in self.off else tuple(self._subjects[spec].ready)

    def chunk(self, room: int | None) -> Chunk | None:
        """Cases that were compiled; of those that are not of the corpus at most `room`. None where there are none."""
        answered = sum(each.answered for each in self._subjects.values())
        if (listed := self._lists.next(answered, last=room == 0)) is not None:
            return listed
        if not self._chunks or room == 0:
            return None
        chunk = self._chunks.popleft()
        if room is not None and len(chunk.cases) > room:
            self._chunks.appendleft(msgspec.structs.replace(chunk, cases=chunk.cases[room:]))
            chunk = msgspec.structs.replace(chunk, cases=chunk.cases[:room])
        return chunk

    def listed(self, chunk: Chunk) -> None:
        """Cases that are judged first; none of them is dropped."""
        if chunk.subject in self.off:
            self._lists.add(chunk, spaced=chunk.subject in self.traced)
            return
        subject = self._subjects[chunk.subject]
        subject.listed.extend(chunk.cases)
        subject.origins |= dict.fromkeys(chunk.cases, chunk.origin)

    def wait(self, spec: str, text: str) -> None:
        """A drawn case asks for a kernel that is not compiled."""
        self._subjects[spec].doubt()
        if text in self._subjects[spec].origins or not self._cases.put_off(spec, text):
            return
        self.put_off += 1
        if spec in self.off:
            self._judge(spec, (text,))
            return
        self._queue(spec, text)

    def leave(self) -> None:
        """A drawn case asks for something that is not compiled, and nobody judges it later."""
        self.put_off += 1
        self.dropped += 1

    def judged(self, spec: str) -> None:
        """A case of a subject was judged."""
        self._subjects[spec].answered += 1

    def want(self, spec: str, text: str) -> None:
        """A case was judged without checks that ask for kernels which are not compiled: they shall be, for cases that are drawn later."""
        subject = self._subjects[spec]
        if spec not in self.off and text not in subject.waiting and text not in subject.out:
            subject.judged.add(text)
            self._queue(spec, text)

    def _queue(self, spec: str, text: str) -> None:
        subject = self._subjects[spec]
        least = subject.waiting.add(text)
        if least in subject.judged:
            subject.judged.remove(least)
        elif least is not None:
            self._cases.dropped(spec, least)
            self.dropped += 1

    def next(self, judged: int, elapsed: float) -> Prepare | None:
        """What is compiled next; None where nothing waits, or where enough was compiled for the cases that were judged.

        Args:
            judged: cases so far.
            elapsed: seconds since the search began.
        """
        if not self._pace.allows(judged, elapsed):
            return None
        for _ in range(len(self._order)):
            self._order.rotate(-1)
            spec = self._order[-1]
            if spec not in self.off and (task := self._of(spec)) is not None:
                self._pace.handed(task)
                return task
        return None

    def _of(self, spec: str) -> Prepare | None:
        """The next task of a subject: a kind, cases of the corpus and a drawn case take turns, as far as there are any."""
        subject = self._subjects[spec]
        for _ in range(3):
            subject.turn += 1
            if subject.turn % 3 == 1 and (subject.total is None or subject.next < subject.total):
                kind, subject.next = subject.next, subject.next + 1
                return Prepare(spec, kind=kind, seed=batch_seed(self._seed, f"{spec} kind", kind), examples=_EXAMPLES)
            if subject.turn % 3 == 2 and subject.listed:
                count = min(_LISTED, len(subject.listed))
                return self._task(spec, tuple(subject.listed.popleft() for _ in range(count)))
            if subject.turn % 3 == 0 and subject.waiting:
                return self._task(spec, (subject.waiting.take(),))
        return None

    def _task(self, spec: str, cases: tuple[str, ...]) -> Prepare:
        self._subjects[spec].out |= dict.fromkeys(cases)
        return Prepare(spec, cases)

    def prepared(self, answer: Prepared) -> None:
        """A task ended."""
        spec, subject = answer.subject, self._subjects[answer.subject]
        self._pace.ended(answer.kind, answer.compiled)
        if answer.kind < 0:
            self._judge(spec, self._back(spec, answer.cases))
            return
        self._judge(spec, self._cases.new(spec, answer.cases))
        subject.total = answer.total
        subject.supposed.discard(answer.kind)
        if answer.cases and answer.kind not in subject.ready:
            subject.ready.append(answer.kind)
        if answer.traced:
            self.traced.add(spec)
        if not answer.usual or (answer.cases and not answer.launches):
            self.give_up(spec)

    def lost(self, task: Prepare, case: str | None) -> None:
        """The process that compiled for a task is gone; a worker judges the case that it was at, and the kind is left out."""
        spec = task.subject
        self._pace.lost(task)
        if task.kind < 0:
            back = self._back(spec, task.cases)
            self._subjects[spec].listed.extendleft(text for text in reversed(back) if text != case)
            self._judge(spec, tuple(text for text in back if text == case))
        elif case is not None:
            self._judge(spec, self._cases.new(spec, (case,)))

    def give_up(self, spec: str) -> None:
        """Nothing of a subject is compiled ahead: what waits or is being compiled is judged, and everything is drawn."""
        subject = self._subjects[spec]
        self.off.add(spec)
        self._judge(spec, (*subject.out, *subject.listed, *subject.waiting.clear()))
        subject.out.clear()
        subject.listed.clear()

    def _back(self, spec: str, cases: tuple[str, ...]) -> tuple[str, ...]:
        """Those cases that were being compiled; they no longer are."""
        out = self._subjects[spec].out
        found = tuple(text for text in cases if text in out)
        for text in found:
            del out[text]
        return found

    def _judge(self, spec: str, cases: tuple[str, ...]) -> None:
        """Hand cases that were not judged to workers, a few at a time."""
        origins, own, judged = self._subjects[spec].origins, self._cases.origin(spec), self._subjects[spec].judged
        known = judged.intersection(cases)
        judged -= known
        cases = tuple(text for text in cases if text not in known)
        for origin in dict.fromkeys(origins.get(text, own) for text in cases):
            found = [text for text in cases if origins.get(text, own) == origin]
            for i in range(0, len(found), _LISTED):
                chunk = Chunk(spec, tuple(found[i : i + _LISTED]), "fuzz", origin)
                if origin == own:
                    self._chunks.append(chunk)
                else:
                    self._lists.add(chunk, spaced=spec in self.traced)
        for text in cases:
            origins.pop(text, None)
