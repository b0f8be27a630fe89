"""The command `flashverify vectors`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["vectors_command"]

_CHOICES = {"safetensors": ("safetensors",), "json": ("json",), "both": ("safetensors", "json")}


@click.command("vectors", short_help="Write cases, exact outputs and bounds.")
@click.argument("folder", metavar="FOLDER")
@click.option(
    "--subject", metavar="SPEC", default="bundled", help="whose cases, form and contract they are [default: bundled]"
)
@click.option("--case", "texts", metavar="TEXT", multiple=True, help="this case; may be given several times")
@click.option("--matrix", is_flag=True, help="the standard matrix, beside the drawn cases")
@click.option(
    "--cases",
    metavar="N",
    type=click.IntRange(min=0),
    help="drawn cases [default: 50, or 0 beside --case and --matrix]",
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="of the drawn cases [default: 0]")
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(_CHOICES)),
    default="safetensors",
    help="of the files [default: safetensors]",
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def vectors_command(
    folder: str,
    subject: str,
    texts: tuple[str, ...],
    matrix: bool,
    cases: int | None,
    seed: int,
    kind: str,
    as_json: bool,
) -> int:
    """Write cases with their inputs, exact outputs and bounds into a new folder, for suites that are not in Python.

    No kernel runs. The bounds are those of the subject's declared form.
    """
    from flashverify.subjects.finding import require_findable
    from flashverify.vectors.folder import require_new, write_folder
    from flashverify.vectors.formats import require_library

    target = Path(folder)
    require_new(target)
    require_library(_CHOICES[kind])
    require_findable(subject)
    os.environ.setdefault("TRITON_INTERPRET", "1")  # of a module that asks for a GPU when it is imported

    from flashverify.subjects import load_subject

    kernel = load_subject(subject)
    count = (0 if texts or matrix else 50) if cases is None else cases
    chosen = _chosen(kernel, texts, matrix=matrix, count=count, seed=seed)
    manifest = write_folder(target, kernel, chosen, _CHOICES[kind])
    size = sum(path.stat().st_size for path in target.iterdir())
    if as_json:
        found = {"manifest": str(manifest), "vectors": len(chosen), "bytes": size, "exit_code": 0}
        click.echo(json.dumps(found))
    else:
        click.echo(f"{len(chosen)} vectors, {size / 2**20:.1f} MiB: {manifest}")
    return 0


def _chosen(subject: Subject, texts: tuple[str, ...], *, matrix: bool, count: int, seed: int) -> tuple[Case, ...]:
    """The cases that are asked for, each once, those that are too large for a file left out."""
    from flashverify.campaign.toolkit import bundled
    from flashverify.campaign.worker.search import draw
    from flashverify.case.text import parse_case
    from flashverify.vectors.contents import PAIR_LIMIT

    named = [parse_case(text) for text in texts]
    for case in named:
        if (reason := subject.supports.refusal(case)) is not None:
            raise UsageError(f"--case={str(case)!r} is not accepted by {subject.name}: {reason}")
        if _pairs(case) > PAIR_LIMIT:
            raise UsageError(
                f"--case={str(case)!r} is not accepted: {_pairs(case)} pairs; at most {PAIR_LIMIT} over all heads"
            )
    fixed = [case for case in (bundled.matrix(subject, "cpu") if matrix else ()) if _pairs(case) <= PAIR_LIMIT]
    drawn = (
        [case for case in draw(bundled.strategy(subject, "cpu"), count, seed) if _pairs(case) <= PAIR_LIMIT]
        if count
        else []
    )
    chosen = tuple(dict.fromkeys([*named, *fixed, *drawn]))
    if not chosen:
        raise UsageError("--cases=0 is not accepted: at least one case, by --cases, --case or --matrix")
    return chosen


def _pairs(case: Case) -> int:
    return case.batch * case.heads_q * case.seq_q * case.seq_k
