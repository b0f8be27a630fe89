"""`flashverify compile`. Imports no torch."""

from __future__ import annotations

import json

import click

__all__ = ["compile_command"]


@click.command("compile", short_help="Compile Triton kernels without a GPU.")
@click.option("--subject", multiple=True, metavar="SPEC", help="registered name or module:name; repeatable")
@click.option("--arch", multiple=True, metavar="sm_NN", help="repeatable [default: sm_80, sm_90 and sm_100]")
@click.option("--only", metavar="TEXT", default="", help="only launches with this text in their kernel or label")
@click.option(
    "--sample", metavar="N", type=click.IntRange(min=1), help="compile only N, spread evenly over all of them"
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def compile_command(
    subject: tuple[str, ...], arch: tuple[str, ...], only: str, sample: int | None, as_json: bool
) -> int:
    """Compile Triton kernels without a GPU: registers, shared memory, spills, and hazards in the intermediate code.

    Exit code 1 is: a hazard, or a kernel that does not compile.
    """
    from flashverify.compiling import ARCHITECTURES, as_text, compile_launches, exit_code, find_jobs, spread
    from flashverify.compiling import as_json as to_json
    from flashverify.subjects import default_subjects

    jobs = find_jobs(subject or default_subjects(), arch or ARCHITECTURES, only=only)
    found = compile_launches(spread(jobs, sample))
    click.echo(json.dumps(to_json(found, of=len(jobs))) if as_json else as_text(found, of=len(jobs)))
    return exit_code(found)
