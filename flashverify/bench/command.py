"""The command `flashverify bench`."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import click

from flashverify.errors import UsageError
from flashverify.formats import DTYPES

__all__ = ["bench_command"]

_GPU_SUBJECTS = ("bundled", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient", "flex-attention")
_CPU_SUBJECTS = ("torch-cpu",)
_FILE = click.Path(path_type=Path)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them; `name` is the option's."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"--{name}={text!r} is not accepted: whole numbers with commas between them") from error


def _parsed(_context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    return _numbers(option.name or "", text)


@click.command("bench", short_help="Time kernels side by side.")
@click.option(
    "--subject",
    multiple=True,
    metavar="SPEC",
    help="registered name, module:name or flex-attention; repeatable, ratios are of the first [default: bundled, SDPA's "
    "backends and FlexAttention]",
)
@click.option(
    "--lengths",
    default="4096",
    metavar="N,...",
    callback=_parsed,
    show_default=True,
    help="keys per sequence",
)
@click.option("--dims", default="64,128", metavar="D,...", callback=_parsed, show_default=True, help="head dimensions")
@click.option(
    "--dtype", multiple=True, default=("fp16",), metavar="|".join(DTYPES), show_default=True, help="repeatable"
)
@click.option(
    "--mask", multiple=True, default=("full", "causal"), metavar="full|causal", show_default=True, help="repeatable"
)
@click.option(
    "--pass",
    "passes",
    multiple=True,
    default=("forward", "backward"),
    metavar="forward|backward",
    show_default=True,
    help="repeatable",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    metavar="N",
    help="queries per sequence, for decoding [default: the keys' number]",
)
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="sequences [default: 16,384 tokens in all]")
@click.option("--heads", default="", metavar="HQ,HKV", help="query heads and kv heads [default: 2,048 / D of both]")
@click.option(
    "--rounds", default=30, type=click.IntRange(min=1), show_default=True, help="times taken of each, interleaved"
)
@click.option("--device", default="cuda", metavar="cuda|cpu", show_default=True, help="where the subjects run")
@click.option(
    "--tutorial", metavar="FILE", default="", help="time Triton's tutorial 06 too: 06-fused-attention.py of its sources"
)
@click.option("--counters", is_flag=True, help="say what limits each kernel: hardware counters, by Nsight Compute")
@click.option("--out", type=_FILE, metavar="FILE", help="store the run, every time of every round")
@click.option("--compare", type=_FILE, metavar="FILE", help="say what changed since a run that --out stored")
@click.option(
    "--picture", type=_FILE, metavar="FILE", help="draw the speeds by length below the roofline: .svg or .png"
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def bench_command(
    subject: tuple[str, ...],
    lengths: tuple[int, ...],
    dims: tuple[int, ...],
    dtype: tuple[str, ...],
    mask: tuple[str, ...],
    passes: tuple[str, ...],
    queries: int | None,
    batch: int | None,
    heads: str,
    rounds: int,
    device: str,
    tutorial: str,
    counters: bool,
    out: Path | None,
    compare: Path | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Time kernels side by side: medians of interleaved rounds, beside a matrix product and a copy, which are the roofline."""
    from flashverify.bench import Measurement, bench, workloads
    from flashverify.bench import as_json as to_json
    from flashverify.bench.picture import check_picture, draw
    from flashverify.bench.rivals import TUTORIAL, sha256_of
    from flashverify.bench.stored import earlier_run, store
    from flashverify.bench.text import block_text

    pair = _numbers("heads", heads) if heads else None
    if pair is not None and len(pair) != 2:
        raise UsageError(f"--heads={heads!r} is not accepted: query heads, a comma, kv heads")
    work = workloads(
        lengths=lengths,
        dims=dims,
        dtypes=dtype,
        masks=mask,
        passes=passes,
        queries=queries,
        batch=batch,
        heads=(pair[0], pair[1]) if pair else None,
    )
    if counters and device != "cuda":
        raise UsageError(f"--counters is not accepted with --device={device}: they are those of a GPU")
    if picture is not None:
        check_picture(picture)
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"--out={str(out)!r} is not accepted: there is no folder {str(out.absolute().parent)!r}")
    earlier = None if compare is None else earlier_run(compare)
    found: list[Measurement] = []

    def run() -> dict[str, Any]:
        return to_json(found, _machine(device), {TUTORIAL: sha256_of(tutorial)} if tutorial else None)

    def told(group: list[Measurement]) -> None:
        found.extend(group)
        if out is not None:
            store(run(), out)
        if not as_json:
            click.echo(block_text(group, earlier) + "\n")

    specs = subject or (_GPU_SUBJECTS if device == "cuda" else _CPU_SUBJECTS)
    bench(specs, work, device=device, tutorial=tutorial, rounds=rounds, counters=counters, each=told)
    if earlier is not None and earlier.machine != _machine(device):
        click.echo(
            f"--compare: that run was on another machine, {earlier.machine}; this one is {_machine(device)}", err=True
        )
    if picture is not None:
        draw(found, picture, machine=_machine(device))
    if as_json:
        click.echo(json.dumps(run()))
    return 0


def _machine(device: str) -> str:
    from flashverify.subjects.evidence import evidence_on

    return evidence_on(device) if device == "cuda" else platform.processor() or platform.machine()
