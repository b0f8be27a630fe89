"""What a report says, before it is HTML, Markdown or JSON: the verdict, the findings in words, the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flashverify.campaign.store.reproduction import replay_line
from flashverify.checks.registry import CHECKS, failure_title
from flashverify.judge.verdict import Status
from flashverify.report.aggregate import Aggregate, Bucket
from flashverify.report.text import number_text, plural, ratio_of

if TYPE_CHECKING:
    from flashverify.campaign.store.reader import StoredRun
    from flashverify.judge.record import Confirmation, FindingRecord, RunRecord, Summary
    from flashverify.judge.verdict import Key

__all__ = ["RATIO_SENTENCE", "Finding", "Headline", "Level", "Report", "build_report", "evidence_text"]

Level = Literal["clean", "findings", "none"]
RATIO_SENTENCE = (
    "The ratio of an element is its error divided by the largest error that a correct kernel of this numerical form can make "
    "there: up to 1 rounding explains the error, above 1 it cannot."
)


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict in words; `notes` are what qualifies it."""

    level: Level
    title: str
    detail: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding as it is shown.

    Args:
        title: the failure in words; `ratio` at its worst element, None where there is none.
        record: what is stored.
        replay: the command line that reproduces it; `script` a path below the run folder, empty where it is unknown.
        diagnosis, place: what explains it and where it shows, in words; empty where unknown.
        confirmation: re-verification in words; `confirmed` False where it speaks against the finding, None where none was made.
        expected, got, bound: in nine digits; empty where unknown.
        case_title: of the case: minimal, or why it is not.
    """

    title: str
    record: FindingRecord
    ratio: float | None
    replay: str
    script: str
    diagnosis: str
    place: str
    confirmation: str
    confirmed: bool | None
    expected: str
    got: str
    bound: str
    case_title: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is rendered; `pending` are failures of the results that no finding stands for yet."""

    headline: Headline
    record: RunRecord
    summary: Summary | None
    findings: tuple[Finding, ...]
    pending: tuple[tuple[Key, Bucket], ...]
    aggregate: Aggregate

    @property
    def seconds(self) -> float:
        """Wall clock where the run ended, otherwise the time spent judging."""
        return self.summary.seconds if self.summary else sum(t.seconds for t in self.aggregate.subjects.values())


def build_report(run: StoredRun) -> Report:
    """The content of a stored run's report; reads every result once.

    Raises:
        StoreError: the results cannot be read.
    """
    aggregate = Aggregate.of(run.results())
    findings = tuple(
        _finding(f.record, f"findings/{f.path.name}/repro.py" if f.path.name else "") for f in run.findings
    )
    known = {finding.record.key for finding in findings}
    pending = tuple((key, bucket) for key, bucket in sorted(aggregate.failures.items()) if key not in known)
    headline = _headline(aggregate, run.summary, len(findings), len(pending), tuple(run.problems))
    return Report(headline, run.record, run.summary, findings, pending, aggregate)


def evidence_text(evidence: str) -> str:
    """Evidence in words."""
    return {"interpreter": "Triton's CPU interpreter", "cpu": "the CPU", "": "unknown evidence"}.get(evidence, evidence)


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
        "disk": "ended by a full disk",
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


def _finding(record: FindingRecord, script: str) -> Finding:
    verdict, said = record.verdict, record.confirmation
    words, confirmed = _confirmation(said)
    found = record.diagnosis
    return Finding(
        title=failure_title(verdict.check, verdict.error, verdict.output),
        record=record,
        ratio=ratio_of(verdict.ratio) if verdict.ratio else None,
        replay=replay_line(record),
        script=script,
        diagnosis=found.sentence if found else "",
        place=found.place if found else "",
        confirmation=words,
        confirmed=confirmed,
        expected=number_text(said.expected),
        got=number_text(said.got),
        bound=number_text(said.bound),
        case_title=f"Case, not minimal: {record.not_minimal}" if record.not_minimal else "Minimal case",
    )


def _confirmation(said: Confirmation) -> tuple[str, bool | None]:
    words = []
    if said.repeats:
        words.append(f"failed in {said.failed} of {plural(said.repeats, 'fresh process', 'fresh processes')}")
    if said.agrees is not None:
        oracle = said.oracle or "the oracle"
        words.append(f"{oracle} confirms the error" if said.agrees else f"{oracle} does not confirm the error")
    if not words:
        return "Not verified again.", None
    text = "; ".join(words) + "."
    return text[0].upper() + text[1:], said.agrees is not False and (said.failed > 0 or not said.repeats)
