"""What a report says, before it is HTML, Markdown or JSON: the verdict, the findings in words, the tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import msgspec

from flashverify.campaign.card.content import Card, card_of
from flashverify.campaign.refusals.record import read_refusals
from flashverify.campaign.store.losses import loss_sentence, read_losses
from flashverify.campaign.store.stats import read_stats, stats_sentence
from flashverify.checks.registry import CHECKS
from flashverify.judge.record import THIN
from flashverify.judge.verdict import Status
from flashverify.judge.wording import evidence_text, plural
from flashverify.report.pieces import aggregate_of

if TYPE_CHECKING:
    from flashverify.campaign.refusals.record import Refusals
    from flashverify.campaign.store.reader import StoredRun
    from flashverify.judge.record import FindingRecord, RunRecord, Summary
    from flashverify.judge.verdict import Key
    from flashverify.report.aggregate import Aggregate, Bucket

__all__ = ["RATIO_SENTENCE", "Headline", "Level", "Report", "buckets_of", "build_report"]

Level = Literal["clean", "findings", "none"]
_LOSSES = 5
"""Lost workers and GPUs that are named, the latest ones."""
RATIO_SENTENCE = (
    "The ratio of an element is its error divided by the largest error that a correct kernel of this numerical form can make "
    "there: up to 1 rounding explains the error, above 1 it cannot."
)


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict in words; `notes` are what qualifies it, and `thin` says that it is clean over few covering cases."""

    level: Level
    title: str
    detail: str
    notes: tuple[str, ...]
    thin: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is rendered; `pending` are failures of the results that no finding stands for yet, `refusals` cases outside a declaration."""

    headline: Headline
    record: RunRecord
    summary: Summary | None
    findings: tuple[Card, ...]
    pending: tuple[tuple[Key, Bucket], ...]
    aggregate: Aggregate
    refusals: Refusals | None = None

    @property
    def seconds(self) -> float:
        """Wall clock where the run ended, otherwise the time spent judging."""
        return self.summary.seconds if self.summary else sum(t.seconds for t in self.aggregate.subjects.values())


def build_report(run: StoredRun) -> Report:
    """The content of a stored run's report; reads every result once.

    Raises:
        StoreError: the results cannot be read.
    """
    aggregate = aggregate_of(run)
    findings = tuple(card_of(f.record, f"findings/{f.path.name}/repro.py" if f.path.name else "") for f in run.findings)
    known = {key for finding in findings for key in buckets_of(finding.record)}
    pending = tuple((key, bucket) for key, bucket in sorted(aggregate.failures.items()) if key not in known)
    headline = _headline(aggregate, run.summary, len(findings), len(pending), tuple(run.problems))
    lost = tuple(f"Lost: {loss_sentence(each)}." for each in read_losses(run.path).last[-_LOSSES:])
    headline = replace(headline, notes=(*headline.notes, *lost))
    if (stats := read_stats(run.path)) is not None:
        headline = replace(headline, notes=(*headline.notes, stats_sentence(stats)))
    return Report(headline, run.record, run.summary, findings, pending, aggregate, read_refusals(run.path))


def buckets_of(record: FindingRecord) -> set[Key]:
    """The failures that a finding stands for. Results know no causes, so those of any cause are meant."""
    keys = {record.key, *(folded.key for folded in record.folded)}
    return keys | {msgspec.structs.replace(key, cause=0) for key in keys}


def _headline(
    aggregate: Aggregate, summary: Summary | None, findings: int, pending: int, problems: tuple[str, ...]
) -> Headline:
    judged, outcomes = aggregate.judged, aggregate.outcomes
    where = " and ".join(map(evidence_text, sorted(aggregate.evidence))) or "unknown evidence"
    cases = f"{plural(judged, 'case')} on {where}"
    notes = list(_notes(aggregate, summary, problems))
    if findings or pending:
        title = plural(findings, "finding") if findings else f"{plural(pending, 'failure')}, not yet made minimal"
        if findings and pending:
            notes.insert(0, f"{plural(pending, 'further failure is', 'further failures are')} not yet made minimal.")
        failed = outcomes[Status.FAIL]
        return Headline("findings", title, f"{plural(failed, 'case')} of {judged:,} failed, on {where}.", tuple(notes))
    if not judged:
        reason = "no case ran"
        if outcomes[Status.ERROR]:
            reason = "no case could be judged"
        elif refused := outcomes[Status.UNSUPPORTED]:
            reason = (
                "the only case was refused by the subject" if refused == 1 else f"all {refused:,} cases were refused"
            )
        return Headline("none", f"No verdict: {reason}", "Zero judged cases are not a pass.", tuple(notes))
    if outcomes[Status.ERROR]:
        title = f"No verdict: {plural(outcomes[Status.ERROR], 'case')} could not be judged"
        return Headline("none", title, f"No findings in the other {cases}.", tuple(notes))
    if summary is not None and summary.exit_code not in (0, 1) and (aggregate.covering or summary.stopped != "budget"):
        return Headline(
            "none",
            f"No verdict: the run was {_stop_text(summary)}",
            f"No findings up to then, in {cases}.",
            tuple(notes),
        )
    if not aggregate.covering:
        return Headline("none", "No verdict: no case counts as coverage", f"No findings in {cases}.", tuple(notes))
    if aggregate.covering < THIN:
        detail = (
            f"{_scope(aggregate)} But only {plural(aggregate.covering, 'case counts', 'cases count')} as coverage: "
            f"fewer than {THIN} are no more than a first look."
        )
        return Headline("clean", f"No findings in {cases}, thin", detail, tuple(notes), thin=True)
    return Headline("clean", f"No findings in {cases}", _scope(aggregate), tuple(notes))


def _scope(aggregate: Aggregate) -> str:
    worst = aggregate.worst
    if worst is None:
        return "No element was compared with a bound."
    return "Every judged element of every output is within its bound, and every check passed."


def _stop_text(summary: Summary) -> str:
    reasons = {
        "interrupted": "interrupted",
        "workers": "ended because its workers died",
        "gpus": "ended because no GPU was left that kept its workers",
        "places": "ended because no place of the cluster was left that kept its workers",
        "disk": "ended by a full disk",
        "shards": "merged of shards that are not all there and over",
    }
    return reasons.get(summary.stopped, f"ended with exit code {summary.exit_code}")


def _notes(aggregate: Aggregate, summary: Summary | None, problems: tuple[str, ...]) -> list[str]:
    notes = []
    if summary is None:
        notes.append("The run has not ended; this is what is stored so far.")
    elif summary.stopped == "findings":
        notes.append("The search ended when it had as many findings as were asked for.")
    elif summary.stopped != "budget":
        notes.append(f"The run was {_stop_text(summary)} before its budget was met.")
    if summary is not None and summary.part:
        notes.append(f"Not every case that was to be judged was: {summary.part}.")
    if summary is not None and summary.restarts:
        notes.append(
            f"{plural(summary.restarts, 'worker')} died or hung and {'was' if summary.restarts == 1 else 'were'} replaced."
        )
    judged, covering = aggregate.judged, aggregate.covering
    if judged and covering < 0.5 * judged:
        notes.append(
            f"Only {covering:,} of {judged:,} judged cases count as coverage: in the others more than 1 % of the elements are exempt or "
            "uninformative, or zeros would pass."
        )
    examined = {check for totals in aggregate.subjects.values() for check, _ in totals.checks}
    if judged and (unasked := [check for check in CHECKS if check not in examined]):
        notes.append(f"No case had anything to examine for {', '.join(unasked)}.")
    notes.extend(f"Stored data: {problem}." for problem in problems)
    return notes
