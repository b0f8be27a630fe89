"""A comparison of two runs under a baseline: which failures of the later run may stand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.baseline.assessment import assess
from flashverify.baseline.entries import Baseline
from flashverify.judge.wording import plural
from flashverify.report.content import buckets_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.campaign.store.reader import StoredRun
    from flashverify.comparing.change import Row
    from flashverify.comparing.joined import Joined
    from flashverify.comparing.pair import Pair
    from flashverify.report.columns import Identity

__all__ = ["Held"]


class Held:
    """The later run, held against a baseline.

    Args:
        baseline: failures that may stand; None for none.
        run: the later one.
    """

    def __init__(self, baseline: Baseline | None, run: StoredRun) -> None:
        self._baseline = baseline or Baseline(Path())
        self._specs = {finding.record.key.subject: finding.record.subject_spec for finding in run.findings}
        found = assess(self._baseline, (finding.record for finding in run.findings), set())
        self._known = {key: entry for record, entry in found.known for key in buckets_of(record)}
        self._standing = {
            (key.subject, key.dtype): frozenset(
                (k.check, k.error, k.output) for k in self._known if (k.subject, k.dtype) == (key.subject, key.dtype)
            )
            for key in self._known
        }

    def identities(self, pair: Pair) -> frozenset[Identity]:
        """The failures of a case that may stand."""
        return self._standing.get((pair.subject, pair.dtype), frozenset()) if self._standing else frozenset()

    def exceeded(self, table: Iterable[Row]) -> list[str]:
        """Ratios of the later run above their ceilings, in words."""
        return list(dict.fromkeys(self._exceeded(table)))

    def _exceeded(self, table: Iterable[Row]) -> Iterator[str]:
        for row in table:
            names = (row.key.subject, self._specs.get(row.key.subject, ""))
            for ceiling in self._baseline.ceilings:
                if text := ceiling.exceeded(names, row.key.output, row.key.dtype, row.worst[1]):
                    yield text

    def doubts(self, joined: Joined) -> list[str]:
        """How many cases newly fail for a known cause, in words."""
        failing = joined.pairs(joined.failing[1]) if self._standing else ()
        count = sum(bool((pair.after.failures - pair.before.failures) & self.identities(pair)) for pair in failing)
        if not count:
            return []
        causes = "; ".join(dict.fromkeys(f"{entry.title} ({entry.link})" for entry in self._known.values()))
        return [f"{plural(count, 'case newly fails', 'cases newly fail')} for causes that the baseline knows: {causes}"]
