"""A stream of case results, added up. Memory grows by a few floats a case, not by the case."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.judge.verdict import CaseResult, Key, Sampled, Status, Verdict
from flashverify.judge.wording import worse
from flashverify.report.axes import axes_of
from flashverify.report.group import Group, GroupKey, Peak, rank
from flashverify.report.tested import AxesSeen

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Aggregate", "Bucket", "Totals", "outcome"]

_MOST_TEXTS = 2000
_OTHERS = "(further texts, not listed)"
_SEVERITY = (Status.FAIL, Status.ERROR, Status.UNSUPPORTED, Status.EXEMPT, Status.PASS)


@dataclass(slots=True)
class Totals:
    """Counts of one subject."""

    outcomes: Counter[Status] = field(default_factory=Counter)
    covering: int = 0
    seconds: float = 0.0
    evidence: Counter[str] = field(default_factory=Counter)
    checks: Counter[tuple[str, Status]] = field(default_factory=Counter)
    tested: AxesSeen = field(default_factory=AxesSeen)

    def extend(self, later: Totals) -> None:
        """Add those of the cases after these."""
        self.outcomes.update(later.outcomes)
        self.covering += later.covering
        self.seconds += later.seconds
        for text, count in later.evidence.items():
            _count(self.evidence, text, count)
        self.checks.update(later.checks)
        self.tested.extend(later.tested)

    @property
    def judged(self) -> int:
        """Cases about which something was said."""
        return self.outcomes[Status.PASS] + self.outcomes[Status.FAIL] + self.outcomes[Status.EXEMPT]


@dataclass(slots=True)
class Bucket:
    """Failures with one key."""

    count: int
    case: str
    verdict: Verdict
    evidence: str


@dataclass(slots=True)
class Aggregate:
    """Everything that a report says about the results of a run; subjects in the order of their first result."""

    groups: dict[GroupKey, Group] = field(default_factory=dict)
    subjects: dict[str, Totals] = field(default_factory=dict)
    failures: dict[Key, Bucket] = field(default_factory=dict)
    unsupported: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    sampled: Sampled | None = None

    @classmethod
    def of(cls, results: Iterable[CaseResult]) -> Aggregate:
        """The aggregate of `results`."""
        aggregate = cls()
        for result in results:
            aggregate.add(result)
        return aggregate

    def add(self, result: CaseResult) -> None:
        """Add one case."""
        axes = axes_of(result.case)
        if (totals := self.subjects.get(result.subject)) is None:
            totals = self.subjects[result.subject] = Totals()
        checks = _statuses(result.verdicts)
        status = _most_serious(checks.values())
        totals.outcomes[status] += 1
        totals.seconds += result.seconds if math.isfinite(result.seconds) else 0.0
        for warning in result.warnings:
            _count(self.warnings, warning)
        if result.sampled is not None:
            self.sampled = result.sampled.plus(self.sampled)
        if status is Status.UNSUPPORTED:
            _count(self.unsupported, result.unsupported or "")
            return
        if status is Status.ERROR:
            _count(self.errors, next((v.message for v in result.verdicts if v.status is Status.ERROR), "no verdict"))
        if result.evidence:
            _count(totals.evidence, result.evidence)
        if status is not Status.ERROR:
            totals.tested.add(axes)
        totals.covering += result.coverage and status is not Status.ERROR
        for item in checks.items():
            totals.checks[item] += 1
        for stats in result.stats:
            key = GroupKey(result.subject, axes.dtype, stats.output, stats.mode)
            if (group := self.groups.get(key)) is None:
                group = self.groups[key] = Group()
            group.add(stats, result.case, axes)
        if status is Status.FAIL:
            self._bucket(result, axes.dtype.split()[0])

    @property
    def full(self) -> bool:
        """Whether texts or failures were left out, because there are too many."""
        texts = (self.unsupported, self.errors, self.warnings, *(each.evidence for each in self.subjects.values()))
        return any(_OTHERS in each for each in texts) or len(self.failures) >= _MOST_TEXTS

    def extend(self, later: Aggregate) -> None:
        """Add what was added up of the cases after these."""
        for name, totals in later.subjects.items():
            self.subjects.setdefault(name, Totals()).extend(totals)
        for key, group in later.groups.items():
            self.groups.setdefault(key, Group()).extend(group)
        for failure, bucket in later.failures.items():
            if failure in self.failures:
                self.failures[failure].count += bucket.count
            elif len(self.failures) < _MOST_TEXTS:
                self.failures[failure] = bucket
        for mine, others in (
            (self.unsupported, later.unsupported),
            (self.errors, later.errors),
            (self.warnings, later.warnings),
        ):
            for text, count in others.items():
                _count(mine, text, count)
        if later.sampled is not None:
            self.sampled = later.sampled.plus(self.sampled)

    def _bucket(self, result: CaseResult, dtype: str) -> None:
        seen = {verdict.key(result.subject, dtype): verdict for verdict in reversed(result.failures)}
        for key, verdict in sorted(seen.items()):
            if key in self.failures:
                self.failures[key].count += 1
            elif len(self.failures) < _MOST_TEXTS:
                self.failures[key] = Bucket(1, result.case_of(verdict), verdict, result.evidence)

    @property
    def judged(self) -> int:
        """Cases judged, over all subjects."""
        return sum(totals.judged for totals in self.subjects.values())

    @property
    def covering(self) -> int:
        """Cases that count as coverage."""
        return sum(totals.covering for totals in self.subjects.values())

    @property
    def outcomes(self) -> Counter[Status]:
        """Cases by their outcome, over all subjects."""
        return sum((totals.outcomes for totals in self.subjects.values()), Counter[Status]())

    @property
    def evidence(self) -> Counter[str]:
        """Cases by evidence, over all subjects."""
        return sum((totals.evidence for totals in self.subjects.values()), Counter[str]())

    @property
    def worst(self) -> Peak | None:
        """The worst ratio of all."""
        worst: Peak | None = None
        for group in self.groups.values():
            if group.worst is not None and (worst is None or worse(worst.ratio, group.worst.ratio)):
                worst = group.worst
        return worst

    def of_subject(self, subject: str) -> list[tuple[GroupKey, Group]]:
        """The groups of a subject: by dtype, output, mode (end to end first)."""
        found = [(key, group) for key, group in self.groups.items() if key.subject == subject]
        return sorted(found, key=lambda item: rank(item[0]))


def outcome(result: CaseResult) -> Status:
    """The case's status: its most serious verdict; a case without a verdict is an error."""
    return _most_serious(verdict.status for verdict in result.verdicts)


def _statuses(verdicts: Iterable[Verdict]) -> dict[str, Status]:
    """The answer of each check, in the order of the checks: its most serious one."""
    found: dict[str, Status] = {}
    for verdict in verdicts:
        before = found.get(verdict.check)
        if before is not verdict.status:
            found[verdict.check] = verdict.status if before is None else _most_serious((before, verdict.status))
    return found


def _most_serious(statuses: Iterable[Status]) -> Status:
    """An error where there is none."""
    present = set(statuses)
    return next((status for status in _SEVERITY if status in present), Status.ERROR)


def _count(counter: Counter[str], text: str, count: int = 1) -> None:
    """Count `text`; beyond a number of distinct texts the rest is counted together."""
    counter[text if text in counter or len(counter) < _MOST_TEXTS else _OTHERS] += count
