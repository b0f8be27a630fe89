"""How a run stands, read from its folder: from another terminal, or another machine that sees it. Writes nothing of a run that goes on."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.campaign.card.content import card_of
from flashverify.campaign.commands.panel import campaign_words, clock, one_line, panel_lines
from flashverify.campaign.store.losses import loss_sentence, read_losses
from flashverify.campaign.store.reader import RUN, open_run
from flashverify.campaign.supervisor.live import read_live
from flashverify.campaign.supervisor.tally import Tally
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from flashverify.campaign.store.reader import StoredRun
    from flashverify.campaign.supervisor.events import Progress
    from flashverify.campaign.supervisor.live import Live

__all__ = ["Standing", "standing_of"]

_SHOWN = 5
_LOST = 3
"""Lost workers and GPUs that are named, the latest ones."""
_QUIET = 10.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands.

    Args:
        run: as it is stored.
        progress: its counts.
        state: `running`, `over`, or `gone`: it ended without a summary.
        silent: seconds since its last word; None where there was none, and for a run that is over.
    """

    run: StoredRun
    progress: Progress
    state: str
    silent: float | None

    @property
    def exit_code(self) -> int:
        """That of a run that is over; of another one 1 with findings, 3 where it is gone without any, otherwise 0."""
        if self.run.summary is not None:
            return self.run.summary.exit_code
        return 1 if self.progress.findings else 3 if self.state == "gone" else 0

    def lines(self) -> list[str]:
        """The panel, and the findings."""
        record, summary = self.run.record, self.run.summary
        words = self.state
        if summary is not None:
            words += f" ({summary.stopped}), exit code {summary.exit_code}"
        elif self.silent is not None and (self.state == "gone" or self.silent > _QUIET):
            words += f", last word {clock(self.silent)} ago"
        head = campaign_words(record.kind, record.subjects, record.seed, record.shard)
        lines = panel_lines(self.progress, head=head, state=words)
        for finding in self.run.findings[:_SHOWN]:
            lines.append(one_line(f"  {finding.path.name}: {card_of(finding.record).title}"))
        if more := len(self.run.findings) - _SHOWN:
            lines += [f"  and {more} more"] * (more > 0)
        lines += [one_line(f"  lost: {loss_sentence(each)}") for each in read_losses(self.run.path).last[-_LOST:]]
        return lines + [f"warning: {one_line(problem)}" for problem in self.run.problems]

    def fields(self) -> dict[str, Any]:
        """The same for a program; ratios are hex floats."""
        record, progress = self.run.record, self.progress
        found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(progress, worst={}))
        return {
            "run": str(self.run.path),
            "state": self.state,
            "exit_code": self.exit_code,
            "silent": self.silent,
            "kind": record.kind,
            "subjects": list(record.subjects),
            "seed": record.seed,
            "shard": record.shard,
            "progress": found | {"worst": {output: r.hex() for output, r in sorted(progress.worst.items())}},
            "findings": [
                {"folder": str(each.path), "title": card_of(each.record).title, "case": each.record.case}
                for each in self.run.findings
            ],
            "lost": msgspec.to_builtins(read_losses(self.run.path).last),
            "problems": list(self.run.problems),
        }


def standing_of(folder: Path) -> Standing:
    """How the run in a folder stands.

    Raises:
        UsageError: the folder is no run.
        StoreError: it cannot be read.
    """
    if not os.path.lexists(folder / RUN):
        raise UsageError(f"{str(folder)!r} is not accepted: it is no run folder, it has no {RUN}")
    run, live, now = open_run(folder), read_live(folder), time.time()
    if run.summary is not None:
        return Standing(run, _ended(run, live), "over", None)
    state = "running" if live is not None and live.runs(now) else "gone"
    if live is None:
        return Standing(run, _counted(run), state, None)
    progress = msgspec.structs.replace(live.progress, findings=max(live.progress.findings, len(run.findings)))
    if state == "gone":
        progress = msgspec.structs.replace(progress, workers=(), remaining=None, explaining=0)
    return Standing(run, progress, state, max(0.0, now - live.updated))


def _ended(run: StoredRun, live: Live | None) -> Progress:
    """Of a run that is over; its summary counts."""
    assert run.summary is not None
    summary, last = run.summary, live.progress if live is not None and live.over else _counted(run)
    return msgspec.structs.replace(
        last,
        elapsed=summary.seconds,
        cases=summary.cases,
        unsupported=summary.unsupported,
        covering=summary.covering,
        findings=summary.findings,
        restarts=summary.restarts,
        rate=summary.cases / summary.seconds if summary.seconds > 0 else 0.0,
        remaining=None,
        since_new=last.since_new if summary.findings else None,
    )


def _counted(run: StoredRun) -> Progress:
    """Of a run that left no word: its results, counted."""
    tally = Tally()
    for result in run.results(parsed=True):
        tally.add(result, result.subject, 0.0)
    found = tally.progress(0, 0.0, None, None)
    return msgspec.structs.replace(found, findings=len(run.findings), since_new=None)
