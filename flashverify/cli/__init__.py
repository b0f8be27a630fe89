"""The command line. Thin: it reads options, calls the campaign and the reports, and turns errors into exit codes.

Nothing here imports torch: subjects are loaded in worker processes.
"""

from __future__ import annotations

import click

from flashverify.bench.command import bench_command
from flashverify.campaign.commands.program import Program
from flashverify.cli.campaigns import fuzz_command, run_command
from flashverify.cli.machines import merge_command, status_command
from flashverify.cli.repairing import repair_command
from flashverify.cli.stored import list_command, replay_command, report_command
from flashverify.comparing.command import compare_command
from flashverify.compiling.command import compile_command
from flashverify.describe.command import describe_command
from flashverify.gallery.command import gallery_command
from flashverify.mutants.command import mutants_command
from flashverify.probing.command import probe_command
from flashverify.training.command import train_command
from flashverify.vectors.command import vectors_command
from flashverify.xray.command import xray_command

__all__ = ["main"]

_EXIT_CODES = """
Exit codes: 0 clean and the budget met; 1 findings; 2 usage or configuration; 3 no verdict (no case was judged, every
worker died, the disk is full); 4 clean, but silently wrong outside a declaration (--refusals); 129, 130 and 143 after
SIGHUP, SIGINT and SIGTERM, with everything stored.

Loading a subject runs its code.
"""


@click.group("flashverify", cls=Program, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="flashverify", prog_name="flashverify")
def main() -> None:
    """Verify and fuzz attention kernels against sound per-element bounds."""


for command in (
    run_command,
    fuzz_command,
    replay_command,
    repair_command,
    report_command,
    status_command,
    merge_command,
    compare_command,
    list_command,
    bench_command,
    compile_command,
    xray_command,
    describe_command,
    probe_command,
    mutants_command,
    gallery_command,
    vectors_command,
    train_command,
):
    main.add_command(command)
