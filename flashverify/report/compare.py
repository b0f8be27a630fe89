"""What changed from one run to another, on the very same cases: may the change be merged?

`do not merge`: a common case fails in a way in which it did not fail before, or an element is newly outside its bound.
`look`: the worst ratio or the 99th percentile of an output grew by more than 10 percent, its bias moved significantly by more than a
thousandth of the bound, a status, the coverage, the evidence or an assumed form changed, or cases are missing. Growth that stays below a
hundredth of the bound is none.
`may merge`: nothing of that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flashverify.campaign.store.reader import open_run
from flashverify.errors import NoVerdictError
from flashverify.judge.wording import plural, ratio_text
from flashverify.report.change import LISTED, Changed, Mover, Row, changed, grew, movers, rows
from flashverify.report.held import Held
from flashverify.report.joined import Pair, changed_settings, join, notes_about

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flashverify.baseline.entries import Baseline

__all__ = ["Comparison", "compare_runs"]

Decision = Literal["do not merge", "look", "may merge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The answer and what it rests on; `settings` maps what changed of forms and environment to its two values."""

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

    @property
    def exit_code(self) -> int:
        """1 for `do not merge`, otherwise 0."""
        return 1 if self.decision == "do not merge" else 0

    def to_text(self) -> str:
        """Plain text for a terminal."""
        from flashverify.report.compare_text import to_text

        return to_text(self)

    def to_markdown(self) -> str:
        """Markdown for a comment on a pull request."""
        from flashverify.report.compare_text import to_markdown

        return to_markdown(self)

    def to_json(self) -> str:
        """JSON for programs; the fields are those of this class, `format` is 1, ratios as in report.json."""
        from flashverify.report.compare_text import to_json

        return to_json(self)


def compare_runs(before: Path, after: Path, baseline: Baseline | None = None) -> Comparison:
    """Compare two run folders.

    Args:
        before: of the earlier run.
        after: of the later one.
        baseline: failures that may stand: a case that newly fails for their causes is no reason against the change, only one to look.

    Raises:
        NoVerdictError: no case was judged in both.
        StoreError: a folder is no run, or its results cannot be read.
    """
    old, new = open_run(before), open_run(after)
    joined = join(old, new)
    both = [pair for pair in joined.pairs if pair.before.judged and pair.after.judged]
    held = Held(baseline, new)
    failing = [
        found for pair in joined.pairs if (found := changed(pair, pair.before, pair.after, held.identities(pair)))
    ]
    passing = [found for pair in both if not pair.after.failures and (found := changed(pair, pair.after, pair.before))]
    if not both and not failing:
        raise NoVerdictError(f"none of the {plural(len(joined.pairs), 'common case')} was judged in both runs")
    table = rows(both)
    settings = changed_settings(old.record, new.record, joined)
    doubts = [*_doubts(joined.pairs), *_row_doubts(table), *_setting_doubts(settings)]
    if joined.only_before:
        doubts.append(
            f"{plural(len(joined.only_before), 'case')} of the earlier run {'is' if len(joined.only_before) == 1 else 'are'} not in the later one"
        )
    errors = _error_reasons(failing) + held.exceeded(table)
    doubts += held.doubts(joined.pairs)
    return Comparison(
        decision="do not merge" if errors else "look" if doubts else "may merge",
        reasons=tuple(errors + doubts),
        notes=tuple(notes_about(old, new, joined)),
        common=len(joined.pairs),
        judged=len(both),
        only_before=joined.only_before,
        only_after=joined.only_after,
        rows=table,
        movers=movers(both),
        newly_failing=tuple(failing),
        newly_passing=tuple(passing),
        settings=settings,
    )


def _error_reasons(failing: list[Changed]) -> list[str]:
    if not failing:
        return []
    kinds = Counter(title for found in failing for title in found.failures)
    listed = "; ".join(
        f"{title} ({count:,})" for title, count in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))[:LISTED]
    )
    return [f"{plural(len(failing), 'case newly fails', 'cases newly fail')}: {listed}"]


def _doubts(pairs: Iterable[Pair]) -> list[str]:
    statuses: Counter[tuple[str, str]] = Counter()
    gained = lost = 0
    for pair in pairs:
        if pair.before.status is not pair.after.status:
            statuses[pair.before.status.value, pair.after.status.value] += 1
        gained += pair.after.coverage and not pair.before.coverage
        lost += pair.before.coverage and not pair.after.coverage
    found = [f"{plural(count, 'case')} changed from {old} to {new}" for (old, new), count in sorted(statuses.items())]
    if gained or lost:
        found.append(f"coverage changed: {plural(lost, 'case')} lost, {plural(gained, 'case')} gained")
    return found


def _row_doubts(table: Iterable[Row]) -> list[str]:
    found = []
    for row in table:
        moved = [
            f"{name} {ratio_text(before)} to {ratio_text(after)}"
            for name, (before, after) in (("worst", row.worst), ("p99", row.p99))
            if grew(before, after)
        ]
        key = row.key
        if moved:
            found.append(f"the ratio of {key.output} grew ({key.dtype}, {key.mode}, {key.subject}): {', '.join(moved)}")
        if row.drifted:
            found.append(f"the bias of {key.output} moved ({key.dtype}, {key.mode}, {key.subject}): {row.bias.text()}")
    return found


def _setting_doubts(settings: dict[str, tuple[str, str]]) -> list[str]:
    return [f"the {name} changed" for name in settings if name.startswith(("form of ", "evidence of "))]
