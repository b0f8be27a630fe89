"""The command `flashverify mutants`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashverify.campaign.commands.signals import ending_signals
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.mutants.runner.records import MutantResult

__all__ = ["mutants_command"]

_MEMORY_SHARE = 0.8


@click.command("mutants", short_help="Plant defects and see whether they are found.")
@click.option("--bank", default="all", metavar="curated|generated|all", show_default=True, help="which mutants")
@click.option("--only", multiple=True, metavar="ID", help="only this mutant of the bank; repeatable")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="only N of them, drawn by the seed")
@click.option("--device", default="auto", metavar="auto|cpu|cuda", show_default=True, help="where the kernels run")
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="processes [default: one per CPU; on a GPU one per two CPUs]",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    metavar="S",
    show_default=True,
    help="seconds of judging for one mutant, and half as many for shrinking",
)
@click.option(
    "--cases", type=click.IntRange(min=1), default=2000, metavar="N", show_default=True, help="cases drawn per subject"
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, metavar="N", show_default=True, help="of the draws and the sample"
)
@click.option(
    "--out", metavar="DIR", help="run folder; an unfinished run goes on [default: a new one in flashverify-out]"
)
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="make detecting cases minimal")
@click.option("--include-equivalent", is_flag=True, help="judge mutants known to be equivalent too")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def mutants_command(
    bank: str,
    only: tuple[str, ...],
    sample: int | None,
    device: str,
    workers: int | None,
    limit: float,
    cases: int,
    seed: int,
    out: str | None,
    shrink: bool,
    include_equivalent: bool,
    as_json: bool,
) -> int:
    """Plant defects in the bundled kernels and see whether the harness finds them: the test of the tester.

    Exit codes: 0 all found and all controls quiet; 1 survivors, false alarms or errors; 2 usage; 3 nothing was judged; 129,
    130 and 143 after SIGHUP, SIGINT and SIGTERM, with everything stored.
    """
    from flashverify.campaign import environment
    from flashverify.campaign.corpus import corpus_cases
    from flashverify.mutants.runner import summary
    from flashverify.mutants.runner.run import MutantRun, run_mutants
    from flashverify.mutants.runner.select import equivalent, select

    if out is not None and (not out or "\0" in out):
        raise UsageError(f"--out={out!r} is not accepted: a folder")
    mutants = select(bank, only, sample, seed)
    device = environment.resolve_device(device)
    workers = workers or max(1, environment.cpu_count() // (1 if device == "cpu" else 2))
    run = MutantRun(
        mutants=mutants,
        equivalent=equivalent(),
        out=Path(out or f"flashverify-out/mutants-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"),
        device=device,
        workers=workers,
        limit=limit,
        cases=cases,
        seed=seed,
        shrink=shrink,
        include_equivalent=include_equivalent,
        memory=_memory_per_worker(workers),
        corpus=corpus_cases(),
    )
    code: list[int] = []
    with ending_signals(code.append):
        results = run_mutants(run, each=_progress(len(mutants)), stopped=lambda: bool(code))
    left = len(mutants) - len(results)
    figures = summary.as_json(results, left=left) | {"out": str(run.out), "seed": seed, "device": device}
    click.echo(json.dumps(figures) if as_json else summary.as_text(results, left=left) + f"\nresults: {run.out}")
    return code[0] if code else summary.exit_code(results)


def _memory_per_worker(workers: int) -> int | None:
    try:
        return int(_MEMORY_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / workers)
    except (ValueError, OSError):
        return None


def _progress(total: int) -> Callable[[MutantResult, int], None]:
    def each(result: MutantResult, left: int) -> None:
        by = f"  {result.check} {result.error} {result.output}".rstrip() if result.check else ""
        cost = f"  {result.cases} cases, {result.seconds:.1f} s"
        print(f"[{total - left}/{total}] {result.status.value:11} {result.name}{by}{cost}", file=sys.stderr, flush=True)

    return each
