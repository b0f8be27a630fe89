"""`flashverify status` and `flashverify merge`: campaigns on other machines, and parts of one that become one run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flashverify.campaign.commands.options import JSON, REPORT

__all__ = ["merge_command", "status_command"]


@click.command("status", short_help="Say how a run stands.")
@click.argument("run_dir", metavar="RUN_DIR")
@JSON
def status_command(run_dir: str, as_json: bool) -> int:
    """Say how a run stands, from any machine that sees its folder.

    The exit code is that of a run that is over. While it runs, it is 1 with findings and otherwise 0; it is 3 where the run is gone
    without a verdict.
    """
    from flashverify.campaign.commands.status import standing_of

    standing = standing_of(Path(run_dir))
    click.echo(json.dumps(standing.fields()) if as_json else "\n".join(standing.lines()))
    return standing.exit_code


@click.command("merge", short_help="Make one run of the shards of a campaign.")
@click.argument("out", metavar="OUT")
@click.argument("run_dirs", metavar="RUN_DIR...", nargs=-1, required=True)
@click.option(
    "--corpus",
    multiple=True,
    metavar="FILE",
    help="add what the run found to this corpus; of further files, given likewise, the cases go into the first one",
)
@JSON
@REPORT
def merge_command(out: str, run_dirs: tuple[str, ...], corpus: tuple[str, ...], as_json: bool, no_report: bool) -> int:
    """Make one run, in a new folder, of the shards of a campaign (--shard I/N of `run` and `fuzz`).

    It holds what the campaign without shards judges. Where a shard is missing or not over, the verdict says so; the command without
    --shard, with --out OUT, judges the rest.
    """
    from flashverify.campaign.commands.merge import run_merge
    from flashverify.campaign.corpus.kept import keep_cases, kept_cases, merge_corpora
    from flashverify.report import write_report

    files = [Path(file) for file in corpus]
    for file in files:
        kept_cases(file)
    code = run_merge(
        Path(out), [Path(each) for each in run_dirs], as_json=as_json, report=None if no_report else write_report
    )
    if files:
        merge_corpora(files[0], files[1:])
        keep_cases(files[0], Path(out))
    return code
