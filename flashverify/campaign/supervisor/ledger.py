"""What a campaign keeps: its tally and its run folder, in step. Findings reach the disk before the results that show them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign import environment
from flashverify.campaign.causes.needs import NOT_YET
from flashverify.campaign.gpus import gpu_words
from flashverify.campaign.store.losses import Losses, Lost, read_losses, write_losses
from flashverify.campaign.store.resume import check_resumable, recount
from flashverify.campaign.store.writer import RunStore
from flashverify.campaign.supervisor.events import WorkerLost
from flashverify.campaign.supervisor.journal import Journal
from flashverify.campaign.supervisor.tally import Tally
from flashverify.errors import StoreError
from flashverify.judge.record import Diagnosis, RunRecord, Summary

if TYPE_CHECKING:
    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.campaign.protocol import CaseJudged, Improved, Minimal
    from flashverify.campaign.store.writer import StoredRun
    from flashverify.campaign.supervisor.events import GpuSetAside
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.judge.record import FindingRecord, Repair
    from flashverify.judge.verdict import CaseResult, Key

__all__ = ["Ledger"]

TIME_OVER = "the time for minimising findings was over"
CUT_SHORT = "the time for shrinking it was over"
SWITCHED_OFF = "shrinking is switched off (--shrink turns it on)"
TOO_SLOW = "every smaller case of a hang would take its whole time limit"


class Ledger:
    """Opens the run folder of a campaign and goes on with what it holds.

    Attributes:
        tally: what was seen.
        store: the folder, locked.
        journal: what was handed out, and what of it was judged.
        restarts: workers that were lost.
        problems: what was damaged in a resumed folder, in words.

    Raises:
        UsageError: the folder holds another run, or is in use.
        StoreError: the folder cannot be read or written.
    """

    def __init__(self, config: CampaignConfig) -> None:
        self._config = config
        self._unwritten: set[Key] = set()
        self.tally = Tally()
        self.restarts = 0
        self._losses = Losses()
        self.problems: tuple[str, ...] = ()
        self.store = RunStore(config.out)
        try:
            stored = self.store.read() if self.store.exists else None
            if stored is not None:
                check_resumable(stored, config)
            if stored is not None:
                self.journal = self._resume(stored)
            else:
                found = environment.collect(config.device)
                self._header = RunRecord(
                    config.kind,
                    config.subjects,
                    config.seed,
                    found,
                    config.command,
                    time.time(),
                    numerics=config.numerics,
                    profile=config.profile,
                    sealed=True,
                    shard=str(config.shard),
                    max_cases=config.max_cases,
                )
                self.store.write_header(self._header)
                self.journal = Journal(config, self.store)
            self.problems = (*self.store.problems, *(stored.problems if stored is not None else ()))
        except BaseException:
            self.store.close()
            raise

    def _resume(self, stored: StoredRun) -> Journal:
        self._header = stored.record
        self.restarts = stored.summary.restarts if stored.summary else 0
        self._losses = read_losses(stored.path)
        missing: list[FindingRecord] = []
        before = self.store.claims().seconds
        counted = recount(self.tally, stored, self._config, before, missing)
        journal = Journal(self._config, self.store, counted, sealed=stored.record.sealed)
        for record in missing:
            self.store.write_finding(self.tally.records.get(record.key, record))
        for key in self.tally.owners:  # a kill may have left the folder of a finding that another one holds already
            self.store.remove_finding(key)
        self.store.forget_summary()
        if self._header.max_cases != self._config.max_cases:
            self._change(max_cases=self._config.max_cases)
        return journal

    def keep(self, result: CaseResult, spec: str, elapsed: float) -> list[tuple[FindingRecord, bool]]:
        """Stores a result; the findings that it changed, and whether each is new."""
        known = set(self.tally.records)
        changed = self.tally.add(result, spec, elapsed)
        for record in changed:
            self.store.write_finding(record)
        self.store.append(result)
        return [(record, record.key not in known) for record in changed]

    def lost(self, event: WorkerLost | GpuSetAside, elapsed: float) -> None:
        """Notes what is gone, and why; nothing depends on it, so a disk that refuses ends no campaign."""
        if isinstance(event, WorkerLost):
            lost = Lost(elapsed, f"worker {event.worker}", event.reason, event.case, event.printed)
        else:
            lost = Lost(elapsed, gpu_words(event.gpu), f"set aside: {event.reason}")
        self._losses = self._losses.also(lost)
        with contextlib.suppress(StoreError):
            write_losses(self.store.path, self._losses)

    def describe(self, event: CaseJudged) -> None:
        """The form of a subject, where it is not in the header."""
        if event.form and event.result.subject not in self._header.form:
            self._change(form=self._header.form | {event.result.subject: event.form})

    def machine(self, found: dict[str, str]) -> None:
        """What a worker knows of its machine."""
        if found.items() - self._header.environment.items():
            self._change(environment=self._header.environment | found)

    def _change(self, **changes: object) -> None:
        self._header = msgspec.structs.replace(self._header, **changes)
        self.store.write_header(self._header)

    def improved(self, event: Improved) -> None:
        """A smaller case of a finding, or what is wrong there; it is stored with the next state of the finding, or at the end."""
        found = event.diagnosis
        self.tally.replace(event.key, case=event.case, verdict=event.verdict, diagnosis=found, not_minimal=CUT_SHORT)
        self._unwritten.add(event.key)

    def minimal(self, event: Minimal) -> FindingRecord:
        """A finding was shrunk and verified."""
        record = self.tally.replace(
            event.key,
            case=event.case,
            verdict=event.verdict,
            confirmation=event.confirmation,
            diagnosis=event.diagnosis,
            not_minimal="" if event.complete else self._why_not_minimal(event.key),
        )
        return self.rewrite(record)

    def _why_not_minimal(self, key: Key) -> str:
        if not self._config.shrink:
            return SWITCHED_OFF
        return TOO_SLOW if key.check == "hang" else CUT_SHORT

    def found(self, key: Key, sighting: Sighting, like: FindingRecord, elapsed: float) -> FindingRecord:
        """A failure that looks like those of the finding `like` and has another cause."""
        return self.rewrite(self.tally.found(key, sighting, like.evidence, like.subject_spec, elapsed))

    def fold(self, key: Key, cause: Key, why: str) -> FindingRecord:
        """A finding has the cause of another one. That one is on the disk before the folder of the first goes."""
        record = self.rewrite(self.tally.fold(key, cause, why))
        self.store.remove_finding(key)
        self._unwritten.discard(key)
        return record

    def renamed(self, key: Key, diagnosis: Diagnosis) -> FindingRecord:
        """A finding has a diagnosis that says more than its own."""
        own = self.tally.records[key].diagnosis
        if not diagnosis.repairs and own is not None:
            diagnosis = msgspec.structs.replace(diagnosis, repairs=own.repairs, unmended=own.unmended)
        return self.rewrite(self.tally.replace(key, diagnosis=diagnosis))

    def mended(self, key: Key, repairs: tuple[Repair, ...], unmended: str = "") -> FindingRecord:
        """Changes of the source are known with which the subject of a finding is right, or why the search for them ended early."""
        own = self.tally.records[key].diagnosis or Diagnosis()
        return self.rewrite(
            self.tally.replace(key, diagnosis=msgspec.structs.replace(own, repairs=repairs, unmended=unmended))
        )

    def rewrite(self, record: FindingRecord) -> FindingRecord:
        """Stores a finding as it is now."""
        self.store.write_finding(record)
        self._unwritten.discard(record.key)
        return record

    def sum_up(self, elapsed: float, reason: str, exit_code: int, part: str) -> Summary:
        """Finishes with the summary, which is returned.

        Args:
            elapsed: seconds.
            reason: why the run ended.
            exit_code: that an interrupted run ends with.
            part: what was judged of the cases that were to be judged, in words.
        """
        summary = self.tally.summary(self.restarts, elapsed, reason, exit_code)
        summary = msgspec.structs.replace(summary, part=part)
        self.finish(summary)
        return summary

    def finish(self, summary: Summary) -> None:
        """Stores what is left, and the summary last; the results of a run over lists are put in their order."""
        over = summary.stopped in ("budget", "findings")
        for record in list(self.tally.records.values()):
            if over and record.not_minimal == NOT_YET:
                reason = TIME_OVER if self._config.shrink else SWITCHED_OFF
                self._unwritten.add(self.tally.replace(record.key, not_minimal=reason).key)
        self._unwritten |= {record.key for record in self.tally.counted()}
        for key in sorted(self._unwritten):
            self.store.write_finding(self.tally.records[key])
        self._unwritten.clear()
        if self._config.kind == "run" and self.tally.drawn:
            self.store.sort_results(self.journal.lists.order())
        self.journal.note_batches()
        self.store.write_summary(summary)
