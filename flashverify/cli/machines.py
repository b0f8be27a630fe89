"""`flashverify status` and `flashverify merge`: campaigns on other machines, and parts of one that become one run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flashverify.campaign.commands.options import JSON, REPORT

__all__ = ["merge_command", "status_command"]


@click.command("status")
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
