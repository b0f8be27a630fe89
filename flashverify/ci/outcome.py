"""A run as the outputs for a CI see it: its report, and what the baseline says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.report.content import buckets_of

if TYPE_CHECKING:
    from flashverify.baseline.assessment import Assessment
    from flashverify.baseline.entries import Known
    from flashverify.campaign.card.content import Card
    from flashverify.judge.verdict import Key
    from flashverify.report.content import Report

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that ended.

    Attributes:
        report: its content.
        headline: the first line of its verdict.
        exit_code: of the command.
        held: what the baseline says; None without one.
    """

    report: Report
    headline: str
    exit_code: int
    held: Assessment | None = None

    def known_as(self, card: Card) -> Known | None:
        """The entry of the baseline that a finding is."""
        pairs = self.held.known if self.held is not None else ()
        return next((entry for record, entry in pairs if record.key == card.record.key), None)

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Title and text of what stands against the run beside its findings."""
        verdict = [("flashverify", self.headline)] if self.exit_code not in (0, 1) else []
        return verdict + [("Above what the baseline lets stand", text) for text in self.exceeded]

    @property
    def known_buckets(self) -> set[Key]:
        """The failures that may stand."""
        return {key for record, _ in (self.held.known if self.held is not None else ()) for key in buckets_of(record)}

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Ratios above their ceilings, in words."""
        return self.held.exceeded if self.held is not None else ()
