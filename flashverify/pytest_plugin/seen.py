"""What the marked tests of a process saw: counts, worst ratios, and which findings. Added up over the workers of xdist at the end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from flashverify.judge.verdict import Status, from_hex
from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from flashverify.judge.verdict import CaseResult, OutputStats

__all__ = ["Ratio", "Seen", "SubjectSeen", "worst_of"]

_PREFIX = "seen-"


class Ratio(msgspec.Struct, frozen=True):
    """A largest error / bound, and the case that had it."""

    value: float
    case: str


class SubjectSeen(msgspec.Struct):
    """What was seen of one subject.

    Attributes:
        judged: cases; `covering` count as coverage, `refused` were not accepted, `failed` have a failing verdict.
        worst: by (output, dtype).
    """

    judged: int = 0
    covering: int = 0
    refused: int = 0
    failed: int = 0
    worst: dict[str, Ratio] = {}


class Seen(msgspec.Struct):
    """What was seen of every subject, by the name that is shown.

    Attributes:
        met: numbers of the entries of the baseline that stood for a failure.
        fixed: those of entries whose own case passed.
    """

    subjects: dict[str, SubjectSeen] = {}
    met: set[int] = set()
    fixed: set[int] = set()

    def add(self, subject: str, dtype: str, result: CaseResult) -> None:
        """Count a case."""
        entry = self.subjects.setdefault(subject, SubjectSeen())
        if result.unsupported is not None:
            entry.refused += 1
            return
        entry.judged += not any(verdict.status is Status.ERROR for verdict in result.verdicts)
        entry.covering += result.coverage
        entry.failed += bool(result.failures)
        for stats in result.stats:
            _note(entry.worst, f"{stats.output} {dtype}", Ratio(_ratio(stats), result.case))

    def write(self, folder: Path, worker: str) -> None:
        """One file of this process."""
        (folder / f"{_PREFIX}{worker}.json").write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, folder: Path) -> Seen:
        """All files of a folder, added up."""
        total = cls()
        for file in sorted(folder.glob(f"{_PREFIX}*.json")):
            written = msgspec.json.decode(file.read_bytes(), type=cls)
            total.met |= written.met
            total.fixed |= written.fixed
            for name, part in written.subjects.items():
                entry = total.subjects.setdefault(name, SubjectSeen())
                entry.judged += part.judged
                entry.covering += part.covering
                entry.refused += part.refused
                entry.failed += part.failed
                for key, ratio in part.worst.items():
                    _note(entry.worst, key, ratio)
        return total

    def lines(self) -> Iterator[str]:
        """One line a subject."""
        for name, entry in sorted(self.subjects.items()):
            worst = ", ".join(f"{key} {ratio.value:.3g}" for key, ratio in sorted(entry.worst.items()))
            words = f"{name}: {plural(entry.judged, 'case')} judged, {entry.covering} covering, {entry.failed} failing"
            yield words + f", {entry.refused} not accepted" * bool(entry.refused)
            if worst:
                yield f"  worst error / bound: {worst}"


def worst_of(results: Iterable[CaseResult]) -> Ratio | None:
    """The largest ratio of several cases."""
    found: dict[str, Ratio] = {}
    for result in results:
        for stats in result.stats:
            _note(found, "", Ratio(_ratio(stats), result.case))
    return found.get("")


def _ratio(stats: OutputStats) -> float:
    ratio = from_hex(stats.worst)
    return math.inf if math.isnan(ratio) else ratio


def _note(worst: dict[str, Ratio], key: str, ratio: Ratio) -> None:
    if key not in worst or ratio.value > worst[key].value:
        worst[key] = ratio
