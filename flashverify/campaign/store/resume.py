"""Going on with a run that was interrupted or killed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flashverify.campaign.store.files import set_aside
from flashverify.campaign.store.parts import read_parts
from flashverify.campaign.store.reader import FINDING
from flashverify.case.text import parse_case
from flashverify.errors import CaseTextError, UsageError
from flashverify.judge.verdict import CaseResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.campaign.store.reader import StoredFinding, StoredRun
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.campaign.supervisor.tally import Tally
    from flashverify.judge.record import FindingRecord

__all__ = ["Alike", "check_resumable", "recount"]


_STEPS = ((20_000, 1), (200_000, 10), (math.inf, 100))
"""Of so many results without a failure, every so-manyth is looked at for the company of failures, and counts as many times."""


def check_resumable(stored: StoredRun, config: CampaignConfig) -> None:
    """Only an unfinished run goes on, as what it began as: with the same subjects, seed and numerics.

    Raises:
        UsageError: the folder holds something else.
    """
    out = f"out={str(config.out)!r} is not accepted"
    if stored.summary is not None and stored.summary.stopped == "budget":
        raise UsageError(f"{out}: it holds a finished run; name a new folder")
    if config.kind != stored.record.kind:
        raise UsageError(f"{out}: it holds a run of `{stored.record.kind}`; name a new folder")
    for name, old, new in (
        ("subject", stored.record.subjects, config.subjects),
        ("seed", stored.record.seed, config.seed),
        ("numerics", stored.record.numerics, config.numerics),
        ("shard", stored.record.shard or "none", str(config.shard) or "none"),
        ("profile", stored.record.profile, config.profile),
    ):
        if old != new:
            raise UsageError(f"{out}: it holds a run with {name}={old}, not {new}")


@dataclass(frozen=True, slots=True)
class Alike:
    """Stored results that are marked alike, and were not parsed again.

    Attributes:
        origin: the mark.
        count: results.
        cases: texts of their cases; empty where the mark is a batch.
        results: reads them from the disk.
    """

    origin: str
    count: int
    cases: tuple[str, ...]
    results: Callable[[], Iterator[CaseResult]]


def recount(
    tally: Tally, stored: StoredRun, config: CampaignConfig, seconds: float, missing: list[FindingRecord]
) -> Iterator[tuple[CaseResult, str] | Alike]:
    """Add what is stored to `tally`; each result, with the spec of its subject, or several results together.

    Args:
        tally: of a campaign that has judged nothing yet.
        stored: the run that it goes on with.
        config: of the campaign.
        seconds: of the calls before.
        missing: gets the findings that results show and no folder holds, to be written again.
    """
    records = {finding.record.key: finding.record for finding in stored.findings if _sound(finding, stored.problems)}
    tally.owners.update({folded.key: key for key, record in records.items() for folded in record.folded})
    tally.records.update({key: record for key, record in records.items() if key not in tally.owners})
    specs = {record.key.subject: record.subject_spec for record in tally.records.values()}
    fallback = config.subjects[0] if len(config.subjects) == 1 else ""
    passed = 0

    def look(result: CaseResult, weight: int) -> str:
        spec = _spec(result.origin, config) or specs.get(result.subject) or fallback or result.subject
        missing.extend(tally.look(result, spec, seconds, weight=weight))
        return spec

    for part in read_parts(stored):
        if isinstance(part, CaseResult):
            passed += not part.failures
            tally.count(part)
            yield part, look(part, 1 if part.failures else _weight(passed))
            continue
        tally.count_all(part.account.counts)
        for number, failing in enumerate(part.account.failing):
            passed += not failing
            if weight := 1 if failing else _weight(passed):
                look(part.result(number), weight)
        for number, origin in enumerate(part.account.origins):
            yield Alike(origin.text, origin.count, origin.cases, partial(part.marked, number))


def _weight(passed: int) -> int:
    """What a result without a failure counts among the company of failures, by its number; 0 where it is not looked at."""
    for most, step in _STEPS:
        if passed <= most:
            return 0 if passed % step else step
    return 0


def _spec(origin: str, config: CampaignConfig) -> str:
    """The spec of the subject of a result, by the list or the batch that it is marked with; empty where it is not."""
    kind, _, rest = origin.partition(" ")
    if kind == "batch" and rest.isascii() and rest.isdigit():
        return config.subjects[int(rest) % len(config.subjects)]
    return rest if rest in config.subjects else ""


def _sound(finding: StoredFinding, problems: list[str]) -> bool:
    """Whether every case of a finding is one. Records without checksum may be damaged there."""
    record = finding.record
    try:
        for text in (record.case, record.first, *(folded.case for folded in record.folded)):
            parse_case(text)
    except CaseTextError as error:
        aside = set_aside(finding.path / FINDING)
        problems.append(f"{finding.path / FINDING} is damaged ({error})" + (f", kept as {aside.name}" if aside else ""))
        return False
    return True
