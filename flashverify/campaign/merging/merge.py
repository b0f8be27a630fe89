"""One run made of the shards of a campaign: what it holds is what the campaign without shards judges, whatever the order of the shards."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.merging.findings import merge_findings
from flashverify.campaign.merging.shards import StoredShard, common_lists, open_shards
from flashverify.campaign.refusals.record import Refusals, read_refusals, write_refusals
from flashverify.campaign.store import disk
from flashverify.campaign.store.files import make_folders
from flashverify.campaign.store.notes import Claims
from flashverify.campaign.store.writer import RunStore
from flashverify.campaign.supervisor.config import CampaignConfig
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.lists import CORPUS, GIVEN, KEPT, MATRIX
from flashverify.campaign.supervisor.schedule import Schedule
from flashverify.campaign.supervisor.shard import Shard
from flashverify.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.campaign.supervisor.tally import Tally
    from flashverify.judge.record import RunRecord, Summary

__all__ = ["Merged", "merge_shards"]


@dataclass(frozen=True, slots=True)
class Merged:
    """What was made.

    Args:
        summary: of the whole; `stopped` is `shards` where a part is missing.
        tally: likewise.
        problems: what was damaged in the shards, in words.
    """

    summary: Summary
    tally: Tally
    problems: tuple[str, ...]


def merge_shards(out: Path, folders: Sequence[Path], *, command: str = "") -> Merged:
    """Make the run folder `out`, whole or not at all.

    Args:
        out: a folder that is not there, or is empty.
        folders: the run folders of the shards, in any order; they stay as they are.
        command: the command line, for the record.

    Raises:
        UsageError: `out` holds something, or the folders are not the shards of one campaign.
        StoreError: a folder cannot be read or written.
    """
    shards = open_shards(folders)
    _require_free(out)
    try:
        make_folders(out.parent)
        made = Path(tempfile.mkdtemp(prefix=f".{out.name[:60]}.", dir=out.parent))
    except OSError as error:
        raise StoreError(f"cannot write to {out.parent}: {error}") from error
    try:
        merged = _fill(made, shards, command)
        made.chmod(0o755)
        if out.exists():
            disk.remove_folder(out)
        disk.move(made, out)
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(made)
    return merged


def _require_free(out: Path) -> None:
    try:
        taken = os.path.lexists(out) and (out.is_symlink() or not out.is_dir() or any(out.iterdir()))
    except OSError as error:
        raise StoreError(f"cannot read {out}: {error}") from error
    if taken:
        raise UsageError(f"out={str(out)!r} is not accepted: it is there already; name a new folder")


def _fill(folder: Path, shards: Sequence[StoredShard], command: str) -> Merged:
    lists, header = common_lists(shards), _header(shards, command)
    store = RunStore(folder)
    try:
        store.write_header(header)
        _copy_results(store, shards)
        for record in merge_findings([[each.record for each in shard.run.findings] for shard in shards]):
            store.write_finding(record)
        store.write_lists(lists)
        store.claim(_claims(shards, len(header.subjects)))
    finally:
        store.close()
    _merge_refusals(folder, shards)
    ledger = Ledger(config := _config(folder, header, lists))
    try:
        summary = _summary(ledger.tally, shards, Schedule(config, ledger.journal).part)
        ledger.finish(summary)
    finally:
        ledger.store.close()
    problems = (*(p for shard in shards for p in (*shard.run.problems, *shard.problems)), *ledger.problems)
    return Merged(summary, ledger.tally, problems)


def _header(shards: Sequence[StoredShard], command: str) -> RunRecord:
    """That of the campaign without shards."""
    records = [shard.run.record for shard in shards]
    return msgspec.structs.replace(
        records[0],
        shard="",
        sealed=True,
        command=command,
        started=min(record.started for record in records),
        form={name: form for record in reversed(records) for name, form in record.form.items()},
        environment={name: value for record in reversed(records) for name, value in record.environment.items()},
    )


def _copy_results(store: RunStore, shards: Sequence[StoredShard]) -> None:
    """The results of one shard after the other; of a case that stands twice in one list or batch the first."""
    seen: set[int] = set()
    for shard in shards:
        for result in shard.run.results(parsed=True):
            mark = hash((result.origin, result.case, result.subject))
            if mark not in seen or not result.origin:
                seen.add(mark)
                store.append(result)


def _claims(shards: Sequence[StoredShard], subjects: int) -> Claims:
    """The batches that were handed out; those of shards that had not come so far, or are missing, count as begun."""
    known = {shard.shard.index: shard.claims for shard in shards if shard.claims is not None}
    of, most = shards[0].shard.of, max((claims.batches for claims in known.values()), default=0)
    still_open = {number for claims in known.values() for number in claims.open or ()}
    for number in range(most):
        claims = next((c for index, c in known.items() if Shard(index, of).has_batch(number, subjects)), None)
        if claims is None or number >= claims.batches:
            still_open.add(number)
    return Claims(most, max((claims.seconds for claims in known.values()), default=0.0), tuple(sorted(still_open)))


def _config(folder: Path, header: RunRecord, lists: dict[str, tuple[str, ...]]) -> CampaignConfig:
    """The campaign without shards, as far as its folder says it."""

    def of(kind: str) -> tuple[str, ...]:
        return next((cases for name, cases in lists.items() if name.partition(" ")[0] == kind), ())

    return CampaignConfig(
        kind=header.kind,
        subjects=header.subjects,
        out=folder,
        device="cuda" if header.environment.get("device") == "cuda" else "cpu",
        workers=1,
        seed=header.seed,
        max_cases=header.max_cases,
        cases=of(GIVEN),
        kept=of(KEPT),
        corpus=any(name.startswith(f"{CORPUS} ") for name in lists),
        matrix=any(name.startswith(f"{MATRIX} ") for name in lists),
        numerics=header.numerics,
        profile=header.profile,
    )


def _summary(tally: Tally, shards: Sequence[StoredShard], part: str) -> Summary:
    """Of the whole. Findings are findings; without any, a part that is missing leaves no verdict."""
    summaries = [shard.run.summary for shard in shards if shard.run.summary is not None]
    seconds = max((summary.seconds for summary in summaries), default=0.0)
    summary = tally.summary(sum(each.restarts for each in summaries), seconds, "budget", 0)
    missing = list(_missing(shards))
    asked = any(each.stopped == "findings" for each in summaries)
    if not missing and (asked or not part):
        return msgspec.structs.replace(
            summary, stopped="findings" if asked and summary.findings else "budget", part=part
        )
    words = ", ".join((*missing, *filter(None, (part,))))
    return msgspec.structs.replace(summary, stopped="shards", part=words, exit_code=1 if summary.findings else 3)


def _missing(shards: Sequence[StoredShard]) -> Iterator[str]:
    """In words, which shards are not there or not over."""
    present = {shard.shard.index: shard for shard in shards}
    of = shards[0].shard.of
    if absent := [f"{index}/{of}" for index in range(1, of + 1) if index not in present]:
        yield f"shard {', '.join(absent[:8])}{' and others' if len(absent) > 8 else ''} missing"
    if unfinished := [str(shard.shard) for shard in shards if not shard.over]:
        yield f"shard {', '.join(unfinished)} not over"


def _merge_refusals(folder: Path, shards: Sequence[StoredShard]) -> None:
    """What the subjects made of cases outside their declarations, each once, where that was asked."""
    records = [record for shard in shards if (record := read_refusals(shard.run.path)) is not None]
    if records:
        cases = {(each.subject, each.case): each for record in reversed(records) for each in record.cases}
        unfinished = [set(record.unfinished) for record in records]
        write_refusals(folder, Refusals(tuple(cases.values()), tuple(sorted(set.intersection(*unfinished)))))
