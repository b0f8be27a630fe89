"""Whether a long campaign keeps its rate and its memory: samples of every process of one `flashverify fuzz`, on Linux.

    python benchmarks/endurance.py measure FOLDER [--every 60] -- --subject bundled --hours 2 --workers 2
    python benchmarks/endurance.py page FOLDER [--parts 8]

`measure` runs `flashverify fuzz` with the options behind `--` and `--out FOLDER/run`, and appends a line to FOLDER/samples.tsv every
`--every` seconds. `page` prints a table of equal parts of the time. Cases per second of the processor do not depend on what else the
machine does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE") / 2**20
COLUMNS = ("seconds", "cases", "processor_seconds", "processes", "largest_mib", "supervisor_mib", "run_mib")


class Process(NamedTuple):
    """One line of /proc: its parent, the processor time of itself and of the children it reaped, and its resident memory in MiB."""

    parent: int
    own_seconds: float
    reaped_seconds: float
    resident_mib: float


def processes() -> dict[int, Process]:
    """Every process of the machine."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        user, system, reaped_user, reaped_system = (int(field) / _TICKS for field in fields[11:15])
        found[int(folder.name)] = Process(
            int(fields[1]), user + system, reaped_user + reaped_system, int(fields[21]) * _PAGE
        )
    return found


def family(root: int) -> dict[int, Process]:
    """`root` and everything below it."""
    every, members = processes(), {root}
    while True:
        more = {number for number, one in every.items() if one.parent in members} - members
        if not more:
            return {number: every[number] for number in members if number in every}
        members |= more


def lines_of(path: Path) -> int:
    """Lines of a file; 0 where there is none."""
    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
    except FileNotFoundError:
        return 0


def sample(root: int, run: Path, begun: float) -> tuple[float, ...]:
    """One line of the record, in the order of COLUMNS."""
    members = family(root)
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) / 2**20 if run.exists() else 0.0
    return (
        time.monotonic() - begun,
        lines_of(run / "results.jsonl"),
        sum(one.own_seconds + one.reaped_seconds for one in members.values()),
        len(members),
        max((one.resident_mib for number, one in members.items() if number != root), default=0.0),
        members[root].resident_mib if root in members else 0.0,
        size,
    )


def measure(folder: Path, every: float, options: list[str]) -> int:
    """Run the campaign and sample it; its exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    run, begun = folder / "run", time.monotonic()
    command = [sys.executable, "-m", "flashverify", "fuzz", *options, "--out", str(run)]
    with (folder / "output.txt").open("w") as output, (folder / "samples.tsv").open("w") as samples:
        print(*COLUMNS, sep="\t", file=samples, flush=True)
        campaign = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        while True:
            try:
                return campaign.wait(every)
            except subprocess.TimeoutExpired:
                print(
                    *(f"{value:.1f}" for value in sample(campaign.pid, run, begun)), sep="\t", file=samples, flush=True
                )


def page(folder: Path, parts: int) -> None:
    """Print the table: each part's rate, and the memory at its end."""
    lines = (folder / "samples.tsv").read_text().splitlines()[1:]
    samples = [dict(zip(COLUMNS, map(float, line.split("\t")), strict=True)) for line in lines]
    edges = [samples[round(part * (len(samples) - 1) / parts)] for part in range(parts + 1)]
    print(
        "| minutes | cases | cases a second | cases a second of the processor | largest worker MiB | supervisor MiB | run MiB |"
    )
    print("|---|---|---|---|---|---|---|")
    for before, after in itertools.pairwise(edges):
        cases = after["cases"] - before["cases"]
        within = [one["largest_mib"] for one in samples if before["seconds"] < one["seconds"] <= after["seconds"]]
        print(
            f"| {before['seconds'] / 60:.0f} to {after['seconds'] / 60:.0f} | {cases:,.0f} "
            f"| {cases / (after['seconds'] - before['seconds']):.1f} "
            f"| {cases / (after['processor_seconds'] - before['processor_seconds']):.1f} "
            f"| {max(within):.0f} | {after['supervisor_mib']:.0f} | {after['run_mib']:.1f} |"
        )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = options.add_subparsers(dest="verb", required=True)
    measured = verbs.add_parser("measure")
    measured.add_argument("folder", type=Path)
    measured.add_argument("--every", type=float, default=60.0, metavar="SECONDS")
    shown = verbs.add_parser("page")
    shown.add_argument("folder", type=Path)
    shown.add_argument("--parts", type=int, default=8)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    asked = options.parse_args(sys.argv[1:split])
    if asked.verb == "measure":
        return measure(asked.folder, asked.every, sys.argv[split + 1 :])
    page(asked.folder, asked.parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
