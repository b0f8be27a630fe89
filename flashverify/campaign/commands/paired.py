"""Two subjects on the very same cases, for `flashverify compare`."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.campaign import toolkit
from flashverify.campaign.commands.campaign import campaign_config, run_campaign
from flashverify.campaign.protocol import CaseList, CasesListed, WorkerFailed
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.probe import START_LIMIT, failure_of
from flashverify.campaign.supervisor.process import ProcessSetup, WorkerProcess
from flashverify.errors import NoVerdictError, SubjectLoadError, UsageError

if TYPE_CHECKING:
    from flashverify.campaign.commands.settings import Settings
    from flashverify.campaign.supervisor.schedule import CampaignConfig

__all__ = ["comparable_runs", "list_cases"]


def list_cases(task: CaseList, setup: ProcessSetup) -> tuple[str, ...]:
    """Text forms of cases, drawn in a process of their own.

    Raises:
        FlashverifyError: a subject cannot be loaded, or the process died.
    """
    with tempfile.TemporaryDirectory(prefix="flashverify-list-") as folder:
        process = WorkerProcess(setup, Path(folder) / "inflight.json")
        try:
            process.send(task)
            for _ in range(int(START_LIMIT)):
                dead = process.popen.poll()
                for event in process.wait(1.0):
                    if isinstance(event, CasesListed):
                        return event.cases
                    if isinstance(event, WorkerFailed):
                        raise failure_of(event)
                if dead is not None:
                    break
            raise NoVerdictError(f"no cases for {task.subject!r}; the worker printed: {process.printed()}")
        finally:
            process.close()


def comparable_runs(before: str, after: str, settings: Settings, examples: int = 0) -> tuple[Path, Path]:
    """The run folders of both sides; a side that is a subject is judged now.

    It is judged on the cases of the other side where that is a stored run, otherwise on the standard matrix, or on `examples`
    drawn cases, that both subjects accept.

    Raises:
        FlashverifyError: a side is neither a run folder nor a subject, or cannot be judged.
    """
    stored = [Path(side) if (Path(side) / "run.json").is_file() else None for side in (before, after)]
    for side, path in zip((before, after), stored, strict=True):
        if path is None and Path(side).exists():
            raise UsageError(f"{side!r} is not accepted: it is no run folder; accepted: a run folder or a subject")
        if path is None:
            _require_subject(side)
    if stored[0] is not None and stored[1] is not None:
        return stored[0], stored[1]
    judged = next(side for side, path in zip((before, after), stored, strict=True) if path is None)
    base = campaign_config("run", replace(settings, subject=(judged,)))
    known = next((path for path in stored if path is not None), None)
    if known is not None:
        cases = tuple(dict.fromkeys(r.case for r in open_run(known).results() if r.unsupported is None))
    else:
        setup = ProcessSetup(base.toolkit, base.device, base.case_limit, numerics=base.numerics)
        cases = list_cases(CaseList(before, (after,) if after != before else (), examples, base.seed), setup)
    if not cases:
        raise NoVerdictError(f"there is no case that both {before!r} and {after!r} accept")
    first = stored[0] or _judge(replace(base, subjects=(before,), out=base.out / "before", cases=cases))
    second = stored[1] or _judge(replace(base, subjects=(after,), out=base.out / "after", cases=cases))
    return first, second


def _require_subject(side: str) -> None:
    """Before anything is judged: the other side of a mistyped path may cost minutes."""
    try:
        toolkit.load_toolkit(toolkit.BUNDLED).require_findable(side)
    except SubjectLoadError as error:
        raise UsageError(f"{side!r} is not accepted: it is no run folder, and {error}") from error


def _judge(config: CampaignConfig) -> Path:
    summary = run_campaign(replace(config, shrink=False, max_findings=None), quiet=True)
    if summary.stopped == "interrupted":
        raise SystemExit(summary.exit_code)
    return config.out
