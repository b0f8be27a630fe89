"""What changed from one side to the other, on the very same cases: may the change be merged?

`do not merge`: a common case fails in a way in which it did not fail before, an element is newly outside its bound, or a ratio is above
its ceiling.
`look`: errors, bias or drift grew beyond a threshold, a case that passed is judged no more, the coverage, the evidence or an
assumed form changed, cases are missing, or time or memory grew beyond a threshold that was set.
`may merge`: nothing of that.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from flashverify.campaign.card.content import card_of
from flashverify.campaign.store.reader import open_run
from flashverify.comparing.change import LISTED, Changed, Mover, Row, grew, movers, newly_failing, newly_passing, rows
from flashverify.comparing.element_words import element_doubts, sentence
from flashverify.comparing.held import Held
from flashverify.comparing.joined import Joined, changed_settings, join, notes_about
from flashverify.comparing.judged_sides import JudgedSides
from flashverify.comparing.speed.speed_words import speed_doubts
from flashverify.comparing.thresholds import Thresholds
from flashverify.errors import NoVerdictError
from flashverify.judge.verdict import Status
from flashverify.judge.wording import plural, ratio_text
from flashverify.report.columns import STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flashverify.baseline.entries import Baseline
    from flashverify.campaign.card.content import Card
    from flashverify.campaign.store.reader import StoredRun
    from flashverify.comparing.elements import Elements
    from flashverify.comparing.functions import ChangedFunction
    from flashverify.comparing.speed.times import Speeds
    from flashverify.judge.record import FindingRecord

__all__ = ["Comparison", "compare_runs", "compare_sides"]

Decision = Literal["do not merge", "look", "may merge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The answer and what it rests on.

    Attributes:
        settings: what changed of forms and environment, with its two values.
        elements: what became of every element; None where a side is a stored run.
        functions: what changed of the subjects' own modules; None likewise.
        speeds: time and memory of both sides; None where nothing was timed.
        limits: the thresholds in force.
        specs: of the subjects, before and after.
        findings: of the later side, those whose check, error and output no finding of the earlier one has.
    """

    decision: Decision
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    common: int
    judged: int
    only_before: tuple[tuple[str, str], ...]
    only_after: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    movers: tuple[Mover, ...]
    newly_failing: tuple[Changed, ...]
    newly_passing: tuple[Changed, ...]
    settings: dict[str, tuple[str, str]]
    elements: Elements | None = None
    functions: tuple[ChangedFunction, ...] | None = None
    speeds: Speeds | None = None
    limits: Thresholds = field(default_factory=Thresholds)
    specs: tuple[str, ...] = ()
    findings: tuple[Card, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return sentence(self)

    @property
    def exit_code(self) -> int:
        """1 for `do not merge`, otherwise 0."""
        return 1 if self.decision == "do not merge" else 0

    def to_text(self) -> str:
        """Plain text for a terminal."""
        from flashverify.comparing.text import to_text

        return to_text(self)

    def to_markdown(self) -> str:
        """Markdown for a comment on a pull request."""
        from flashverify.comparing.markdown import to_markdown

        return to_markdown(self)

    def to_html(self) -> str:
        """One page that needs nothing else and runs no script."""
        from flashverify.comparing.page import to_html

        return to_html(self)

    def to_junit(self) -> str:
        """JUnit XML."""
        from flashverify.comparing.junit import render_junit

        return render_junit(self)

    def to_json(self) -> str:
        """JSON for programs; the fields are those of this class, `format` is 1, ratios as in report.json."""
        from flashverify.comparing.json_text import to_json

        return to_json(self)


def compare_sides(sides: JudgedSides, baseline: Baseline | None = None, limits: Thresholds | None = None) -> Comparison:
    """Compare two sides that were judged.

    Args:
        sides: their runs, and what became of every element.
        limits: from which size on a change is a reason to look.
        baseline: failures that may stand: a case that newly fails for their causes is no reason against the change, only one to look.

    Raises:
        NoVerdictError: no case was judged in both.
        StoreError: a folder is no run, or its results cannot be read.
    """
    old, new = map(open_run, sides.runs)
    with contextlib.closing(join(old, new)) as joined:
        return _compared(sides, old, new, joined, baseline, limits or Thresholds())


def _compared(
    sides: JudgedSides, old: StoredRun, new: StoredRun, joined: Joined, baseline: Baseline | None, limits: Thresholds
) -> Comparison:
    held = Held(baseline, new)
    failing, passing = newly_failing(joined, held.identities), newly_passing(joined)
    judged = int(joined.judged.sum())
    if not judged and not failing:
        raise NoVerdictError(f"none of the {plural(len(joined), 'common case')} was judged in both runs")
    table = rows(joined)
    settings = changed_settings(old.record, new.record, joined)
    settings |= sides.versions or {}
    doubts = [*_doubts(joined), *_row_doubts(table, limits), *_setting_doubts(settings)]
    if sides.elements is not None:
        doubts += element_doubts(sides.elements, limits)
    if sides.speeds is not None:
        doubts += speed_doubts(sides.speeds, limits)
    if joined.only_before:
        doubts.append(
            f"{plural(len(joined.only_before), 'case')} of the earlier run {'is' if len(joined.only_before) == 1 else 'are'} not in the later one"
        )
    errors = _error_reasons(failing) + held.exceeded(table)
    doubts += held.doubts(joined)
    return Comparison(
        decision="do not merge" if errors else "look" if doubts else "may merge",
        reasons=tuple(errors + doubts),
        notes=tuple(notes_about(old, new, joined)),
        common=len(joined),
        judged=judged,
        only_before=joined.only_before,
        only_after=joined.only_after,
        rows=table,
        movers=movers(joined),
        newly_failing=tuple(failing),
        newly_passing=tuple(passing),
        settings=settings,
        elements=sides.elements,
        functions=sides.functions,
        speeds=sides.speeds,
        limits=limits,
        specs=tuple(run.record.subjects[0] for run in (old, new) if len(run.record.subjects) == 1),
        findings=_new_findings(old, new),
    )


def compare_runs(before: Path, after: Path, baseline: Baseline | None = None) -> Comparison:
    """Compare two run folders, as `compare_sides` does."""
    return compare_sides(JudgedSides((before, after)), baseline)


def _new_findings(old: StoredRun, new: StoredRun) -> tuple[Card, ...]:
    def identity(record: FindingRecord) -> tuple[str, str, str]:
        return record.verdict.check, record.verdict.error, record.verdict.output

    known = {identity(each.record) for each in old.findings}
    return tuple(card_of(each.record) for each in new.findings if identity(each.record) not in known)


def _error_reasons(failing: list[Changed]) -> list[str]:
    if not failing:
        return []
    kinds = Counter(title for found in failing for title in found.failures)
    listed = "; ".join(
        f"{title} ({count:,})" for title, count in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))[:LISTED]
    )
    return [f"{plural(len(failing), 'case newly fails', 'cases newly fail')}: {listed}"]


def _doubts(joined: Joined) -> list[str]:
    old, new = joined.statuses
    counts: Counter[tuple[str, str]] = Counter()
    for status in set(STATUSES) - {Status.PASS}:
        now = new == STATUSES.index(status)
        for before in set(STATUSES) - {status}:
            counts[before.value, status.value] = int((now & (old == STATUSES.index(before))).sum())
    statuses = +counts
    covered, covers = joined.covering
    gained, lost = int((covers > covered).sum()), int((covered > covers).sum())
    found = [f"{plural(count, 'case')} changed from {old} to {new}" for (old, new), count in sorted(statuses.items())]
    if gained or lost:
        found.append(f"coverage changed: {plural(lost, 'case')} lost, {plural(gained, 'case')} gained")
    return found


def _row_doubts(table: Iterable[Row], limits: Thresholds) -> list[str]:
    found = []
    for row in table:
        moved = [
            f"{name} {ratio_text(before)} to {ratio_text(after)}"
            for name, (before, after) in (("worst", row.worst), ("p99", row.p99))
            if grew(before, after, limits)
        ]
        key = row.key
        if moved:
            found.append(f"the ratio of {key.output} grew ({key.dtype}, {key.mode}, {key.subject}): {', '.join(moved)}")
        if row.drifted(limits):
            found.append(f"the bias of {key.output} moved ({key.dtype}, {key.mode}, {key.subject}): {row.bias.text()}")
    return found


def _setting_doubts(settings: dict[str, tuple[str, str]]) -> list[str]:
    return [f"the {name} changed" for name in settings if name.startswith(("form of ", "evidence of "))]
