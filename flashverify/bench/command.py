"""The command `flashverify bench`."""

from __future__ import annotations

import json
import platform

import click

from flashverify.errors import UsageError
from flashverify.formats import DTYPES

__all__ = ["bench_command"]

_GPU_SUBJECTS = ("bundled", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient")
_CPU_SUBJECTS = ("torch-cpu",)


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
    help="registered name or module:name; repeatable, ratios are of the first [default: bundled and SDPA's backends]",
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
    as_json: bool,
) -> int:
    """Time kernels side by side: medians of interleaved rounds, and a copy of K's and V's bytes."""
    from flashverify.bench import as_json as to_json
    from flashverify.bench import bench, workloads
    from flashverify.bench.text import block_text
    from flashverify.subjects.evidence import evidence_on

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
    specs = subject or (_GPU_SUBJECTS if device == "cuda" else _CPU_SUBJECTS)
    found = bench(
        specs,
        work,
        device=device,
        rounds=rounds,
        each=lambda group: None if as_json else click.echo(block_text(group) + "\n"),
    )
    if as_json:
        machine = evidence_on(device) if device == "cuda" else platform.processor() or platform.machine()
        click.echo(json.dumps(to_json(found, machine)))
    return 0
