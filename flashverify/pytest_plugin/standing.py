"""What a baseline says of one marked test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.sighting import sightings_of
from flashverify.campaign.supervisor.tally import first_record
from flashverify.case.text import parse_case
from flashverify.judge.verdict import from_hex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.judge.verdict import CaseResult
    from flashverify.pytest_plugin.explaining import Explained
    from flashverify.pytest_plugin.groups import Group
    from flashverify.pytest_plugin.runtime import Runtime

__all__ = ["Standing"]


class Standing:
    """The failures of a test, held against the baseline of the session.

    Args:
        runtime: of this process.
        group: of the test.
        results: of its cases.

    Attributes:
        own_case: the test has the case of an entry, and that fails as the entry says; it needs no explanation.
        unknown: findings that may not stand.
        exceeded: ratios above their ceilings, in words.
        reason: why the others stand.
    """

    def __init__(self, runtime: Runtime, group: Group, results: Sequence[CaseResult]) -> None:
        self._runtime = runtime
        self.unknown: list[Explained] = []
        self.exceeded = tuple(dict.fromkeys(filter(None, _exceeded(runtime, group, results))))
        self._reasons: list[str] = []
        self.own_case = (
            group.known is not None and any(result.failures for result in results) and self._own(group, results)
        )
        if group.known is not None and results and not any(result.failures for result in results):
            runtime.seen.fixed.add(group.known)

    @property
    def reason(self) -> str:
        """Every reason once."""
        return "; ".join(dict.fromkeys(self._reasons))

    def _own(self, group: Group, results: Sequence[CaseResult]) -> bool:
        """Whether the first failure of the case of an entry is what the entry says."""
        assert self._runtime.baseline is not None
        assert group.known is not None
        entry = self._runtime.baseline.known[group.known]
        for result in results:
            for key, sighting in sightings_of(result).items():
                record = first_record(key, sighting, result.evidence, group.name.shown, 0.0)
                fits = entry.means(record) and not entry.exceeded_by(record)
                if fits and self._runtime.explains and entry.cause:
                    fits = self._runtime.cause_of(group, sighting.case, key) == entry.cause
                if fits:
                    self._stands(group.known)
                return fits
        return False

    def hold(self, findings: Sequence[Explained]) -> None:
        """Tell the findings that may stand from the others."""
        baseline = self._runtime.baseline
        for found in findings:
            entry = None if baseline is None else baseline.known_as(found.record)
            if baseline is None or entry is None:
                self.unknown.append(found)
            else:
                self._stands(baseline.known.index(entry))

    def _stands(self, number: int) -> None:
        assert self._runtime.baseline is not None
        entry = self._runtime.baseline.known[number]
        self._runtime.seen.met.add(number)
        self._reasons.append(f"{entry.title}: {entry.reason} ({entry.link})")


def _exceeded(runtime: Runtime, group: Group, results: Sequence[CaseResult]) -> Iterator[str]:
    for ceiling in runtime.baseline.ceilings if runtime.baseline is not None else ():
        for result in results:
            dtype = parse_case(result.case).dtype
            for stats in result.stats:
                names = (result.subject, group.name.shown)
                if text := ceiling.exceeded(names, stats.output, dtype, from_hex(stats.worst)):
                    yield f"{text}\n  {result.case}"
