"""Going on with a search that was interrupted or killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.campaign.store.reader import StoredRun
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.campaign.supervisor.tally import Tally
    from flashverify.judge.record import FindingRecord

__all__ = ["check_resumable", "recount"]


def check_resumable(stored: StoredRun, config: CampaignConfig) -> None:
    """Only an unfinished search goes on, with the subjects and the seed that it began with.

    Raises:
        UsageError: the folder holds something else.
    """
    out = f"out={str(config.out)!r} is not accepted"
    if config.kind != "fuzz" or stored.record.kind != "fuzz":
        raise UsageError(f"{out}: it holds a run already; name a new folder")
    for name, old, new in (
        ("subject", stored.record.subjects, config.subjects),
        ("seed", stored.record.seed, config.seed),
        ("numerics", stored.record.numerics, config.numerics),
        ("profile", stored.record.profile, config.profile),
    ):
        if old != new:
            raise UsageError(f"{out}: it holds a run with {name}={old}, not {new}")
    if stored.summary is not None and stored.summary.stopped == "budget":
        raise UsageError(f"{out}: it holds a finished run; name a new folder")


def recount(tally: Tally, stored: StoredRun, config: CampaignConfig, seconds: float) -> list[FindingRecord]:
    """Add what is stored to `tally`; the findings that results show and no folder holds, to be written again."""
    records = {finding.record.key: finding.record for finding in stored.findings}
    tally.owners.update({folded.key: key for key, record in records.items() for folded in record.folded})
    tally.records.update({key: record for key, record in records.items() if key not in tally.owners})
    specs = {record.key.subject: record.subject_spec for record in tally.records.values()}
    fallback = config.subjects[0] if len(config.subjects) == 1 else ""
    missing = []
    for result in stored.results():
        spec = specs.get(result.subject) or fallback or result.subject
        missing += tally.add(result, spec, seconds)
    return missing
