"""A campaign as a command: engine, status line, signals, report, verdict."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign import environment, toolkit
from flashverify.campaign.commands.panel import campaign_words, one_line
from flashverify.campaign.commands.signals import ending_signals
from flashverify.campaign.commands.status_line import StatusLine
from flashverify.campaign.commands.terminal import summary_json, verdict_lines
from flashverify.campaign.commands.waived import assessed, lines_under, summary_under
from flashverify.campaign.commands.where import here, in_cluster
from flashverify.campaign.refusals.asking import ask_outside
from flashverify.campaign.refusals.record import OUTSIDE_WRONG, write_refusals
from flashverify.campaign.refusals.words import refusal_lines
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.supervisor.shard import Shard
from flashverify.case.space.profiles import out_of_reach
from flashverify.errors import FlashverifyError, NoVerdictError, UsageError

if TYPE_CHECKING:
    from flashverify.baseline.assessment import Assessment
    from flashverify.baseline.entries import Baseline
    from flashverify.campaign.commands.settings import Settings
    from flashverify.campaign.refusals.record import Refusals
    from flashverify.judge.record import Summary

__all__ = ["campaign_config", "default_subjects", "run_campaign"]

Report = Callable[[Path], Iterable[Path]]
Ended = Callable[[Path, str, int, "Assessment | None"], None]
_DEFAULT_SECONDS = 600.0
_EXPLAIN_SECONDS = 60.0
_LONG_LIMIT = 300.0


def default_subjects() -> tuple[str, ...]:
    """The bundled subjects that can run here.

    Raises:
        NoVerdictError: there is none.
    """
    from flashverify.subjects import default_subjects as registered
    from flashverify.subjects import describe_subjects

    available = {entry[0] for entry in describe_subjects() if entry[2]}
    names = tuple(name for name in registered() if name in available)
    if not names:
        raise NoVerdictError(
            "no subject is available on this machine; `flashverify list` says why, --subject names one"
        )
    return names


def campaign_config(
    kind: str,
    settings: Settings,
    *,
    cases: tuple[str, ...] = (),
    kept: tuple[str, ...] = (),
    matrix: bool = False,
    corpus: bool = False,
) -> CampaignConfig:
    """The campaign that the settings ask for, with defaults filled in: a search shrinks findings, a matrix does not.

    Raises:
        UsageError: a setting is not accepted, or there is no subject of that name.
    """
    out = Path(settings.out or f"flashverify-out/{kind}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    seed, subjects, numerics, profile = settings.seed, settings.subject, settings.numerics, settings.profile
    shard = settings.shard
    if (out / "run.json").exists() and None in (seed, subjects, numerics, profile, shard):
        record = open_run(out).record  # a resumed run brings its own seed, subjects, numerics, profile and shard
        numerics, profile = numerics or record.numerics, profile or record.profile
        shard = record.shard if shard is None else shard
        seed, subjects = record.seed if seed is None else seed, subjects or record.subjects
    if seed is None and shard and kind == "fuzz":
        raise UsageError("--seed is missing: the shards of one search have the same seed")
    if seed is None:
        seed = secrets.randbits(32) if kind == "fuzz" else 0
    seconds = settings.seconds
    if kind == "fuzz" and seconds is None and settings.max_cases is None:
        seconds = _DEFAULT_SECONDS
    for spec in subjects or ():
        toolkit.load_toolkit(toolkit.BUNDLED).require_findable(spec)
    subjects = subjects or default_subjects()
    where = in_cluster(kind, settings, subjects, out) if settings.engine == "ray" else here(kind, settings, subjects)
    for problem in where.problems:
        print(f"flashverify: warning: {problem}", file=sys.stderr)
    return CampaignConfig(
        kind=kind,
        subjects=subjects,
        out=out,
        device=where.device,
        workers=where.workers,
        seed=seed,
        shard=Shard.parse(shard or ""),
        seconds=seconds,
        max_cases=settings.max_cases,
        cases=cases,
        kept=kept,
        matrix=matrix,
        corpus=corpus,
        shrink=kind == "fuzz" if settings.shrink is None else settings.shrink,
        max_findings=1 if settings.fail_fast else settings.max_findings,
        explain_seconds=_EXPLAIN_SECONDS,
        case_limit=_LONG_LIMIT if profile == "long" else 60.0 if where.device == "cpu" else 120.0,
        memory=where.memory,
        toolkit=toolkit.BUNDLED,
        gpus=where.gpus,
        numerics=environment.resolve_numerics(numerics, where.device),
        profile=(profile or "") if kind == "fuzz" else "",
        command=shlex.join(("flashverify", *sys.argv[1:])),
        compilers=where.compilers,
        environment=where.environment,
        mps=where.mps,
        host=where.host,
    )


def run_campaign(
    config: CampaignConfig,
    *,
    as_json: bool = False,
    report: Report | None = None,
    quiet: bool = False,
    refusals: bool = False,
    baseline: Baseline | None = None,
    ended: Ended | None = None,
) -> Summary:
    """Run it, report it, print the verdict (stdout) and progress (stderr).

    Args:
        config: what to do.
        as_json: print one JSON object instead of the verdict in words.
        report: writes the report of a run folder; a run without one keeps its verdict.
        quiet: print no verdict.
        refusals: then put cases outside the declarations. Where they are neither refused nor right, the summary that is returned has exit
            code 4 in place of 0; the stored one says what was found inside.
        baseline: known failures, which leave the verdict and the exit code clean.
        ended: called with the run folder, the first line of the verdict, the exit code and what the baseline says.

    Returns:
        The summary; under a baseline, its findings are those that the baseline does not know.

    Raises:
        FlashverifyError: a subject cannot be loaded, no worker survives, or the disk refuses.
    """
    with StatusLine(campaign_words(config.kind, config.subjects, config.seed, str(config.shard))) as status:
        engine = Engine(config, (status,))
        with ending_signals(lambda code: engine.stop("interrupted", code)):
            for problem in engine.problems:
                print(f"flashverify: warning: {problem}", file=sys.stderr)
            summary = engine.run()
            outside = _outside(config, status) if refusals and summary.exit_code in (0, 1) else None
            reports = _written(report, config.out)
    findings, worst, tally = engine.tally.findings(), engine.tally.worst, engine.tally
    held = None
    if baseline is not None and summary.stopped != "interrupted":
        held = assessed(baseline, engine, config)
        summary, findings = summary_under(held, summary, tally.errors), held.unknown
    lines = verdict_lines(
        summary,
        findings,
        worst,
        config.out,
        reports,
        errors=tally.errors,
        first_error=tally.first_error,
        sampled=tally.sampled,
    )
    if outside is not None and outside.bad and summary.exit_code == 0:
        summary = msgspec.structs.replace(summary, exit_code=OUTSIDE_WRONG)
    if held is not None:
        lines = lines_under(lines, held)
    if outside is not None:
        lines = [*lines, "", *map(one_line, refusal_lines(outside))]
    if unreached := out_of_reach(config.device, config.profile):
        lines = [*lines, one_line(unreached)]
    if as_json:
        fields = {"baseline": held.fields()} if held is not None else {}
        fields |= {"refusals": msgspec.to_builtins(outside)} if outside is not None else {}
        print(json.dumps(summary_json(summary, findings, worst, config.out, reports, lines[0]) | fields))
    elif not quiet:
        print("\n".join(lines))
    if ended is not None:
        ended(config.out, lines[0], summary.exit_code, held)
    return summary


def _outside(config: CampaignConfig, status: StatusLine) -> Refusals | None:
    """What the subjects make of cases outside their declarations, stored in the run folder; None where that cannot be said."""
    status.note("cases outside the declaration")
    try:
        found = ask_outside(
            config.subjects,
            device=config.device,
            seed=config.seed,
            numerics=config.numerics,
            case_limit=config.case_limit,
        )
    except FlashverifyError as error:
        print(f"flashverify: warning: no case outside the declaration: {error}", file=sys.stderr)
        return None
    write_refusals(config.out, found)
    return found


def _written(report: Report | None, out: Path) -> tuple[Path, ...]:
    try:
        return tuple(report(out)) if report is not None else ()
    except (FlashverifyError, OSError) as error:
        print(f"flashverify: warning: no report: {error}", file=sys.stderr)
        return ()
