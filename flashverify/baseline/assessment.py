"""Findings and ratios of a run, held against a baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.judge.wording import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.baseline.entries import Baseline, Known
    from flashverify.judge.record import FindingRecord

__all__ = ["Assessment", "assess"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a baseline says of a run.

    Attributes:
        baseline: that says it.
        known: the findings that may stand, each with its entry.
        unknown: the others.
        worse: why an unknown finding that has an entry is not let stand, in words.
        exceeded: ratios above their ceilings, in words.
        absent: entries about the subjects of the run that no finding showed, each with what its own case says, in words.
    """

    baseline: Baseline
    known: tuple[tuple[FindingRecord, Known], ...]
    unknown: tuple[FindingRecord, ...]
    worse: tuple[str, ...] = ()
    exceeded: tuple[str, ...] = ()
    absent: tuple[tuple[Known, str], ...] = ()

    @property
    def fails(self) -> bool:
        """Whether there is anything that may not stand."""
        return bool(self.unknown or self.exceeded)

    def with_ratios(self, exceeded: Iterable[str]) -> Assessment:
        """The same with ratios above their ceilings."""
        return replace(self, exceeded=tuple(dict.fromkeys(text for text in exceeded if text)))

    def with_absent(self, absent: Iterable[tuple[Known, str]]) -> Assessment:
        """The same with what the cases of the absent entries say."""
        return replace(self, absent=tuple(absent))

    def lines(self) -> list[str]:
        """The baseline's part of a verdict."""
        found = [f"known: {entry.title}: {entry.reason} ({entry.link})" for _, entry in self.known]
        found += [f"known, but worse: {text}" for text in self.worse]
        found += [f"above its ceiling: {text}" for text in self.exceeded]
        found += [f"known, not seen: {entry.title} ({entry.link}): {text}" for entry, text in self.absent]
        return [*map(visible, dict.fromkeys(found)), f"baseline: {self.baseline.shown}"]

    def fields(self) -> dict[str, object]:
        """The same for a program."""
        return {
            "path": self.baseline.shown,
            "known": [
                {"title": entry.title, "reason": entry.reason, "link": entry.link, "case": record.case}
                for record, entry in self.known
            ],
            "worse": list(self.worse),
            "exceeded": list(self.exceeded),
            "absent": [{"title": entry.title, "link": entry.link, "why": why} for entry, why in self.absent],
        }


def assess(baseline: Baseline, findings: Iterable[FindingRecord], subjects: set[str]) -> Assessment:
    """Hold findings against a baseline.

    Args:
        baseline: the file.
        findings: of a run.
        subjects: whose absent failures are of interest: names and specs of the subjects that were judged.
    """
    records = tuple(findings)
    pairs = tuple((record, entry) for record in records if (entry := baseline.known_as(record)) is not None)
    unknown = tuple(record for record in records if baseline.known_as(record) is None)
    worse = tuple(
        f"{entry.title}: {entry.exceeded_by(record)}"
        for record in unknown
        for entry in baseline.known
        if entry.means(record)
    )
    met = {id(entry) for record in records for entry in baseline.known if entry.means(record)}
    absent = tuple((entry, "") for entry in baseline.of_subjects(subjects) if id(entry) not in met)
    return Assessment(baseline, pairs, unknown, worse, absent=absent)
