"""A subject that cannot run is no failing kernel: decided by its first cases, all of which raise the same exception."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.campaign.store.reproduction import replay_line
from flashverify.case.text import parse_case
from flashverify.errors import FlashverifyError, NoVerdictError, UsageError
from flashverify.judge.record import FindingRecord
from flashverify.judge.wording import visible
from flashverify.subjects.inability import FORWARD_ONLY, Inability, inability_of

if TYPE_CHECKING:
    from flashverify.judge.verdict import CaseResult, Verdict

__all__ = ["FEW", "MANY", "FirstCases", "inability_in"]

FEW, MANY = 4, 24
"""Cases that must raise the same exception: one that says what the subject lacks, and any other."""
_OTHER = Inability(
    reason="every case raises the same exception",
    advice="If it refuses a part of the case space, say so in Supports (head dims, dtypes, backward=False).",
)
_TRACEBACK = 12
Kept = tuple["CaseResult", str]


@dataclass(slots=True)
class _Subject:
    """The first cases of one subject; those that are held back are no findings yet."""

    wording: str = ""
    place: tuple[str, ...] = ()
    known: Inability | None = None
    count: int = 0
    ran: bool = False
    decided: bool = False
    held: list[Kept] = field(default_factory=list)

    def release(self, kept: Kept) -> list[Kept]:
        """What was held back, and `kept`: the subject can run."""
        self.decided = True
        self.held, released = [], [*self.held, kept]
        return released


class FirstCases:
    """Watches the first results of each subject.

    Results whose exception says that the subject cannot run are held back until another result speaks for the subject, so that none of
    them becomes a finding. An unknown exception is a finding from the first, and ends the run when every one of many cases raised it.

    Args:
        resumed: whether the run has results already; then nothing is watched.
    """

    def __init__(self, *, resumed: bool = False) -> None:
        self._resumed = resumed
        self._subjects: dict[str, _Subject] = {}

    @property
    def held(self) -> int:
        """Results that are held back."""
        return sum(len(subject.held) for subject in self._subjects.values())

    def take(self, result: CaseResult, spec: str) -> list[Kept]:
        """The results that count from now on, with the specs of their subjects.

        Raises:
            NoVerdictError: the subject cannot run.
            UsageError: it has no backward and does not say so.
        """
        subject = self._subjects.setdefault(spec, _Subject())
        kept = (result, spec)
        if self._resumed or subject.decided or result.unsupported is not None:
            return [kept]
        raised, backward = _raised(result), parse_case(result.case).grad.backward
        if raised is None:
            subject.ran = True
            open_still = not backward and (subject.known is FORWARD_ONLY or not subject.count)
            return [kept] if open_still else subject.release(kept)
        wording, place = re.sub(r"\d+", "#", raised.message), _place(raised)
        other = wording != subject.wording and (not place or place != subject.place)
        known = inability_of(raised.output, raised.message)
        if (subject.count and other) or (subject.ran and known is not FORWARD_ONLY):
            return subject.release(kept)
        subject.wording, subject.place, subject.known, subject.count = wording, place, known, subject.count + 1
        if known is None:
            if subject.count >= MANY:
                raise _error(subject, kept, raised)
            return [kept]
        subject.held.append(kept)
        if subject.count >= FEW:
            raise _error(subject, kept, raised)
        return []

    def end(self) -> None:
        """The run is over: results that are still held back were all that their subject did.

        Raises:
            NoVerdictError: the subject cannot run.
            UsageError: it has no backward and does not say so.
        """
        for subject in self._subjects.values():
            if subject.held:
                result, spec = subject.held[0]
                raised = _raised(result)
                assert raised is not None
                raise _error(subject, (result, spec), raised)


def inability_in(result: CaseResult) -> Inability | None:
    """What one result says a subject lacks; None where it says something about the kernel."""
    raised = _raised(result)
    return None if raised is None else inability_of(raised.output, raised.message)


def _raised(result: CaseResult) -> Verdict | None:
    """The exception that was raised before there was any output."""
    first = next(iter(result.verdicts), None)
    return first if first is not None and first.check == "exception" else None


def _place(raised: Verdict) -> tuple[str, ...]:
    """The lines of code through which an exception passed, with its class: words of its message may name the dtype or the layout of a case."""
    frames = re.findall(r'File "[^"]*", line \d+', raised.traceback)
    return (raised.output, *frames) if frames else ()


def _error(subject: _Subject, kept: Kept, raised: Verdict) -> FlashverifyError:
    result, spec = kept
    why = subject.known or _OTHER
    cases = "its first case" if subject.count == 1 else f"each of its first {subject.count} cases"
    if why is FORWARD_ONLY:
        return UsageError(f"subject {spec!r}: {why.reason}: autograd refused {cases} with a backward. {why.advice}")
    case = result.case
    record = FindingRecord(raised.key(result.subject, ""), case, case, raised, result.evidence, spec)
    trace = raised.traceback.splitlines()[-_TRACEBACK:]
    lines = [
        f"the subject could not run: {why.reason}",
        f"  {spec}: {cases} raised {raised.message}",
        f"  {why.advice}",
        f"  {replay_line(record)}",
        *(f"    {line}" for line in trace),
    ]
    return NoVerdictError("\n".join(map(visible, lines)))
