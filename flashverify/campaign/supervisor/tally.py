"""What a campaign has seen so far: counts, worst ratios, buckets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.diagnoses import heard
from flashverify.campaign.causes.needs import NOT_YET
from flashverify.campaign.causes.reservoir import Reservoir
from flashverify.campaign.causes.sighting import may_follow, sightings_of
from flashverify.campaign.plan_name import PROCESS_CHECKS
from flashverify.campaign.shrink.shrinker import measure
from flashverify.campaign.store.counts import Counts
from flashverify.campaign.supervisor.events import Progress
from flashverify.case.text import parse_case
from flashverify.judge.record import FindingRecord, Folded, Summary

if TYPE_CHECKING:
    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.case.case import Case
    from flashverify.judge.record import Diagnosis
    from flashverify.judge.verdict import CaseResult, Key

__all__ = ["Tally", "first_record"]


def first_record(key: Key, sighting: Sighting, evidence: str, spec: str, seconds: float) -> FindingRecord:
    """A finding as it is first seen."""
    return FindingRecord(
        key,
        sighting.case,
        sighting.case,
        sighting.verdict,
        evidence,
        spec,
        seconds=round(seconds, 3),
        not_minimal=NOT_YET,
        first_map=sighting.verdict.map,
    )


class Tally(Counts):
    """Adds results up. Knows nothing of processes or files.

    A bucket that waits is known by its smallest case. A case on which a gradient may be wrong only because O or the LSE is comes after
    those on which it is wrong in its own right: a bucket that was folded by such a case waits again once it is seen on one of these.

    Attributes:
        records: the findings: causes that are known, and buckets that wait.
        owners: by bucket the finding that it was folded into.
        seen: cases of every bucket.
        company: what failed together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[Key, FindingRecord] = {}
        self.owners: dict[Key, Key] = {}
        self.seen = Reservoir()
        self.company = Company()
        self.counts: Counter[Key] = Counter()
        self._followed: set[Key] = set()  # buckets that were folded by a case on which they may only follow
        self._lent: dict[Key, Diagnosis | None] = {}  # what a lead said before it took the words of such a bucket
        self.deadly: set[tuple[str, str]] = set()  # (spec, case) pairs that killed or hung a process

    @property
    def drawn(self) -> int:
        """Cases handed to a subject, whatever came of them."""
        return self.judged + self.unsupported + self.errors

    def add(self, result: CaseResult, spec: str, seconds: float, *, weight: int = 1) -> list[FindingRecord]:
        """Count a result; the findings that are new, or whose case became smaller.

        Args:
            result: of a case.
            spec: of its subject.
            seconds: since the campaign began.
            weight: of the result in `company`, where it may stand for others that are alike or be left to one that does.
        """
        self.count(result)
        return self.look(result, spec, seconds, weight=weight)

    def look(self, result: CaseResult, spec: str, seconds: float, *, weight: int = 1) -> list[FindingRecord]:
        """The same for a result that is counted."""
        if result.unsupported is not None:
            return []
        if weight:
            self.company.add(result, weight)
        return self._bucket(result, spec, seconds)

    def _bucket(self, result: CaseResult, spec: str, seconds: float) -> list[FindingRecord]:
        if not result.failures:
            return []
        changed = []
        for key, sighting in sightings_of(result).items():
            case = parse_case(sighting.case)
            self.counts[key] += 1
            if key.check in PROCESS_CHECKS:
                self.deadly.add((spec, sighting.case))
            known = self.records.get(key)
            if known is None and key not in self.owners:
                changed.append(self.found(key, sighting, result.evidence, spec, seconds))
            elif key in self._followed and not may_follow(sighting):
                changed.append(self._unfold(key))
                changed.append(self.found(key, sighting, result.evidence, spec, seconds))
            elif known is not None and self._leads(known, sighting, case):
                self.seen.lead(sighting)
                changed.append(self.replace(key, case=sighting.case, verdict=sighting.verdict))
            else:
                self.seen.add(sighting, case)
        return changed

    def _leads(self, known: FindingRecord, sighting: Sighting, case: Case) -> bool:
        """Whether a bucket that waits is known by `case` from now on."""
        waits = not known.confirmation.repeats and known.not_minimal == NOT_YET
        leading = self.seen.leading(known.key)
        before = leading is not None and may_follow(leading)
        return waits and (may_follow(sighting), measure(case)) < (before, measure(parse_case(known.case)))

    def found(self, key: Key, sighting: Sighting, evidence: str, spec: str, seconds: float) -> FindingRecord:
        """A failure whose cause is not known."""
        if key == sighting.key:
            self.seen.lead(sighting)
        record = self.records[key] = first_record(key, sighting, evidence, spec, seconds)
        return record

    def fold(self, key: Key, cause: Key, why: str) -> FindingRecord:
        """A finding has the cause of another one, which holds it from now on."""
        member = self.records.pop(key)
        if (leading := self.seen.leading(key)) is not None and may_follow(leading):
            self._followed.add(key)
        count = max(member.count, self.counts[key])
        case = member.case if member.confirmation.failed else member.first
        folded = Folded(key, case, member.verdict.message, why, count)
        self.owners |= {key: cause} | {each.key: cause for each in member.folded}
        lead = self.records[cause]
        said = heard(lead, member)
        if said != lead.diagnosis and key in self._followed:
            self._lent[key] = lead.diagnosis
        return self.replace(cause, folded=(*lead.folded, folded, *member.folded), diagnosis=said)

    def _unfold(self, key: Key) -> FindingRecord:
        """A bucket that was folded is one of its own again; the finding that held it."""
        self._followed.remove(key)
        owner = self.owners.pop(key)
        lead = self.records[owner]
        kept = tuple(folded for folded in lead.folded if folded.key != key)
        return self.replace(owner, folded=kept, diagnosis=self._lent.pop(key, lead.diagnosis))

    def replace(self, key: Key, **changes: object) -> FindingRecord:
        """Change a finding."""
        record = self.records[key] = msgspec.structs.replace(self.records[key], **changes)
        if key.check in PROCESS_CHECKS:
            self.deadly.add((record.subject_spec, record.case))
        return record

    def counted(self) -> list[FindingRecord]:
        """The findings whose stored count is out of date, with the count of now."""
        stale = []
        for key, record in sorted(self.records.items()):
            folded = tuple(msgspec.structs.replace(f, count=self.counts[f.key] or f.count) for f in record.folded)
            count = self.counts[key] or record.count
            if (count, folded) != (record.count, record.folded):
                stale.append(self.replace(key, count=count, folded=folded))
        return stale

    def quarantine(self, spec: str) -> tuple[str, ...]:
        """The cases of a subject that killed or hung a process."""
        return tuple(sorted(text for subject, text in self.deadly if subject == spec))

    def findings(self) -> tuple[FindingRecord, ...]:
        """Every finding, in the order in which they were first seen."""
        return tuple(sorted(self.records.values(), key=lambda r: (r.seconds, r.key)))

    def progress(self, restarts: int, elapsed: float, remaining: float | None, total: int | None) -> Progress:
        """How far the campaign is."""
        newest = max((record.seconds for record in self.records.values()), default=None)
        return Progress(
            elapsed=elapsed,
            cases=self.judged,
            unsupported=self.unsupported,
            errors=self.errors,
            findings=len(self.records),
            restarts=restarts,
            rate=self.judged / elapsed if elapsed > 0 else 0.0,
            worst=dict(self.worst),
            remaining=remaining,
            total=total,
            explained=sum(bool(record.confirmation.repeats) for record in self.records.values()),
            covering=self.covering,
            since_new=None if newest is None else max(0.0, elapsed - newest),
        )

    def summary(self, restarts: int, seconds: float, stopped: str, interrupt_code: int) -> Summary:
        """The end, with the exit code: a finding is one however the run ended; nothing judged is no pass, nor is a run without coverage; a case that could not be judged spoils one."""
        if stopped == "interrupted":
            code = interrupt_code
        elif self.records:
            code = 1
        else:
            passed = stopped in ("budget", "findings") and self.judged and self.covering and not self.errors
            code = 0 if passed else 3
        return Summary(
            cases=self.judged,
            unsupported=self.unsupported,
            covering=self.covering,
            findings=len(self.records),
            restarts=restarts,
            seconds=round(seconds, 3),
            stopped=stopped,
            exit_code=code,
        )
