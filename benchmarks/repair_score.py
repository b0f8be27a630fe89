"""How often the repair of a planted defect is the very text that was there before.

    TRITON_INTERPRET=1 python benchmarks/repair_score.py FILE [--defects PATH] [--only NAME]... [--seconds 20] [--shrink 5] [--jobs 1]

For each mutant of the curated bank, or of the file or folder PATH: the first drawn case that shows it, made smaller for `--shrink` seconds,
then `--seconds` for its repairs, both of processor time. A line of FILE, JSON, is one defect: `restored`: a repair gives the file as it was
before the defect was planted, but for how it is written; `place`: one changes a line of the defect; `elsewhere`: all are at other lines;
`none`: no repair; `not found`: no drawn case showed the defect.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import sys
import tempfile
import textwrap
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("TRITON_INTERPRET", "1")

import msgspec
import torch
from diagnosis_score import concerned, failure, smaller
from planted import defects_of, plant

from flashverify.campaign.toolkit import bundled as toolkit
from flashverify.judge.record import Repair
from flashverify.repair.search import repairs

if TYPE_CHECKING:
    from flashverify.mutants import Mutant


class Score(msgspec.Struct):
    """One defect."""

    name: str
    outcome: str
    seconds: float = 0.0
    case: str = ""
    repairs: tuple[Repair, ...] = ()


def score(mutant: Mutant, seconds: float, shrink: float) -> Score:
    """Plant, find, shrink, repair, compare."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # edits may use what Triton deprecates
    with tempfile.TemporaryDirectory() as name, toolkit.open("cpu", plain=False, numerics="ieee"):
        folder = Path(name)
        spec = plant(mutant, folder)
        subject = toolkit.load(spec)
        verdict = None
        for case in concerned(mutant, spec):
            verdict = failure(mutant, subject, case)
            if verdict is not None:
                break
        if verdict is None:
            return Score(mutant.name, "not found")
        first = case
        case, verdict = smaller(subject, case, verdict, shrink)
        begun = time.process_time()
        found = tuple(repairs(subject, case, first=first, seconds=seconds, clock=time.process_time))
        taken = time.process_time() - begun
        return Score(mutant.name, outcome(mutant, folder, spec, found), round(taken, 2), str(case), found)


def outcome(mutant: Mutant, folder: Path, spec: str, found: tuple[Repair, ...]) -> str:
    """As the module's docstring says."""
    if not found:
        return "none"
    if hasattr(mutant, "plant"):
        planted, package = Path(spec.partition(":")[0]), "flashverify_kernels"
    else:
        package = f"mutant_{mutant.name}"
        planted = folder / package / mutant.file
    text = planted.read_text(encoding="utf-8")
    before, after = (part.replace("flashverify_kernels", package) for part in (mutant.before, mutant.after))
    there = [each for each in found if planted.match(each.file)]
    if any(_meaning(_applied(text, each)) == _meaning(text.replace(after, before)) for each in there):
        return "restored"
    first = text.count("\n", 0, text.index(after)) + 1
    lines = range(first, first + after.rstrip("\n").count("\n") + 1)
    return "place" if any(each.line in lines for each in there) else "elsewhere"


def _applied(text: str, repair: Repair) -> str:
    lines = text.split("\n")
    count = repair.before.count("\n") + 1
    old = lines[repair.line - 1 : repair.line - 1 + count]
    indent = old[0][: len(old[0]) - len(old[0].lstrip())]
    new = textwrap.indent(repair.after, indent) if repair.after else f"{indent}pass"
    return "\n".join([*lines[: repair.line - 1], new, *lines[repair.line - 1 + count :]])


def _meaning(text: str) -> str:
    """The syntax tree of a file, without statements that do nothing."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, [each for each in body if not isinstance(each, ast.Pass)])
    return ast.dump(tree)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--defects", type=Path, action="append", metavar="PATH")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--part", default="0/1", metavar="I/N")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--shrink", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    part, step = map(int, options.part.split("/"))
    every = [m for path in options.defects or [None] for m in defects_of(path)]
    chosen = [m for m in every if (not options.only or m.name in options.only) and not m.gpu and not m.control]
    counts: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    with (
        options.file.open("ab") as file,
        ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=8) as pool,
    ):
        waiting = {pool.submit(score, m, options.seconds, options.shrink): m for m in chosen[part::step]}
        for done in as_completed(waiting):
            try:
                found = done.result()
            except Exception as error:
                found = Score(waiting[done].name, f"{type(error).__name__}: {error}"[:200])
            counts[found.outcome] += 1
            file.write(msgspec.json.encode(found) + b"\n")
            file.flush()
    print(f"{dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
