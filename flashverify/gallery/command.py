"""The command `flashverify gallery`."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path

import click
import msgspec

from flashverify.errors import UsageError
from flashverify.gallery.judging import Budget, judge
from flashverify.gallery.records import Judged
from flashverify.gallery.selection import choose, use_tutorial, use_versions
from flashverify.gallery.table import catalogue_text, page, progress_line
from flashverify.subjects.registry import has_gpu

__all__ = ["gallery_command"]


@click.command("gallery", short_help="Judge kernels that others wrote.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "as_list", is_flag=True, help="say what the gallery holds, and judge nothing")
@click.option("--minutes", metavar="M", type=click.FloatRange(min=0.05), help="of search per kernel [default: 1]")
@click.option("--max-cases", metavar="N", type=click.IntRange(min=1), help="per kernel; without --minutes in any time")
@click.option("--version", "versions", multiple=True, metavar="NAME==X", help="instead of the tried one; repeatable")
@click.option("--tutorial", metavar="FILE", help="06-fused-attention.py of Triton's tutorials, which is in no package")
@click.option(
    "--device", metavar="cpu|cuda", default="cpu", help="where the kernels run [default: cpu, in the interpreter]"
)
@click.option(
    "--out",
    metavar="DIR",
    help="table and runs go there; rows of an earlier table are kept [default: a new one in flashverify-out]",
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def gallery_command(
    names: tuple[str, ...],
    as_list: bool,
    minutes: float | None,
    max_cases: int | None,
    versions: tuple[str, ...],
    tutorial: str | None,
    device: str,
    out: str | None,
    as_json: bool,
) -> int:
    """Judge kernels that others wrote: fetch each NAME from the package index, wire it, and search it for failing cases.

    NAME is a package of the gallery, or package:kernel [default: all]. A package is fetched without its dependencies, its Python files
    alone, into ~/.cache/flashverify/gallery or the folder that ATTENTION_GALLERY names. Exit code 1 is: a kernel has findings; 3 is: no kernel
    was judged.
    """
    if device not in ("cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: cpu or cuda")
    if device == "cuda" and not has_gpu():
        raise UsageError("device='cuda' is not accepted: this machine has no NVIDIA GPU; use cpu")
    if tutorial is not None:
        use_tutorial(tutorial)
    chosen = choose(names, tutorial=tutorial is not None)
    use_versions(versions, [release for release, _ in chosen])
    if as_list:
        click.echo(catalogue_text())
        return 0
    budget = Budget(minutes=1.0 if minutes is None and max_cases is None else minutes, cases=max_cases)
    folder = Path(out or f"flashverify-out/gallery-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    rows = _judged_before(folder / "gallery.json")
    fresh: list[Judged] = []
    for release, kernel in chosen:
        fresh.append(judge(release, kernel, budget, device, folder))
        click.echo(progress_line(fresh[-1]), err=as_json)
        rows[release.name, kernel.name] = fresh[-1]
        command = shlex.join(("flashverify", *sys.argv[1:]))
        (folder / "gallery.md").write_text(page(list(rows.values()), command), encoding="utf-8")
        (folder / "gallery.json").write_bytes(msgspec.json.format(msgspec.json.encode(list(rows.values()))))
    codes = {row.exit_code for row in fresh}
    code = 1 if 1 in codes else 0 if 0 in codes else 3
    if as_json:
        click.echo(json.dumps({"kernels": msgspec.to_builtins(fresh), "out": str(folder), "exit_code": code}))
    else:
        click.echo(f"table: {folder / 'gallery.md'}")
    return code


def _judged_before(table: Path) -> dict[tuple[str, str], Judged]:
    """The rows of a table that an earlier call left in the folder.

    Raises:
        UsageError: it is no table of the gallery.
    """
    if not table.exists():
        return {}
    try:
        rows = msgspec.json.decode(table.read_bytes(), type=tuple[Judged, ...])
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"--out {str(table.parent)!r} is not accepted: {table.name} in it is no table ({error})"
        ) from error
    return {(row.release, row.kernel): row for row in rows}
