"""How long a run of a million stored records takes to be resumed, reported and compared, and how much memory.

    flashverify fuzz --subject bundled --max-cases 1000 --seed 1 --out RUN
    python benchmarks/million.py RUN [--records 1000000] [--folder out/million] [--parts resume report compare]

The records are those of RUN, again and again, each with a seed of its own. Each part is a process of its own; the table has its wall
clock, its processor time and its peak of resident memory, and the size of the report. `compare` gets the run twice. Each part is measured
without an index of the run, which `report` and `compare` then make, and with one, which a campaign leaves behind
(docs/search.md). A part whose processes read pieces beside each other has the processor time of all, and the peak of the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from flashverify.campaign.store.notes import PROGRESS, Claims
from flashverify.campaign.store.results import RESULTS
from flashverify.campaign.store.sealing import seal
from flashverify.campaign.store.segments import INDEX
from flashverify.campaign.store.writer import RUN, RunStore, open_run

BATCH = 200
RESUME = """
import sys, time
from pathlib import Path
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
out = Path(sys.argv[1])
record = open_run(out).record
engine = Engine(CampaignConfig(kind="fuzz", subjects=record.subjects, out=out, device="cpu", workers=2, seed=record.seed, profile=record.profile))
print(engine.tally.judged, engine.tally.covering)
engine.store.close()
"""


class Took(NamedTuple):
    """What a process took: seconds, seconds of the processor and MiB at most."""

    wall: float
    cpu: float
    peak: float


def make(source: Path, out: Path, records: int) -> None:
    """A run folder with so many records, as a kill leaves it."""
    run = open_run(source)
    lines = [line for result, line in run.lines() if not result.failures and result.unsupported is None]
    parts = [_parts(line) for line in lines]
    shutil.rmtree(out, ignore_errors=True)
    store = RunStore(out)
    store.write_header(run.record)
    with (out / RESULTS).open("wb") as file:
        for number in range(records):
            before, after = parts[number % len(parts)]
            file.write(seal(b'%s seed=%d%s,"origin":"batch %d"}' % (before, number, after, number // BATCH)) + b"\n")
    store.claim(Claims(-(-records // BATCH), 1.0, ()))
    store.close()
    assert (out / PROGRESS).exists()
    assert (out / RUN).exists()


def _parts(line: bytes) -> tuple[bytes, bytes]:
    """A record before and after the seed of its case, without its origin and its seal."""
    body = re.sub(rb',"origin":"[^"]*"', b"", line[: line.rindex(b',"crc32"')])
    case, end = body.split(b'"', 4)[3], body.split(b'"', 4)[4]
    return b'{"case":"' + re.sub(rb" seed=\d+", b"", case), b'"' + end


def took(command: list[str]) -> Took:
    """Run a command to its end."""
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return Took(time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def order(parts: list[str]) -> list[tuple[str, bool]]:
    """The parts, each without an index and with one; a resumed run makes none and comes after one that does."""
    makers = [part for part in parts if part != "resume"] or ["report"]
    found = [(part, index) for part in makers for index in (False, True)]
    if "resume" in parts:
        found[:0] = [("resume", False)]
        found.insert(3, ("resume", True))
    return found


def main() -> None:
    """Make the folder and measure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("source", type=Path, metavar="RUN")
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--folder", type=Path, default=Path("out/million"))
    options.add_argument("--parts", nargs="+", default=["resume", "report", "compare"])
    options.add_argument("--json", type=Path, help="write the figures there")
    asked = options.parse_args()
    run, again = asked.folder / "run", asked.folder / "again"
    make(asked.source, run, asked.records)
    shutil.rmtree(again, ignore_errors=True)
    shutil.copytree(run, again, copy_function=os.link)
    size = (run / RESULTS).stat().st_size
    print(f"{asked.records:,} records, {size / 2**20:,.0f} MiB")
    flashverify = [sys.executable, "-m", "flashverify"]
    commands = {
        "resume": [sys.executable, "-c", RESUME, str(run)],
        "report": [*flashverify, "report", str(run)],
        "compare": [*flashverify, "compare", str(run), str(again)],
    }
    found: dict[str, dict[str, Took]] = {}
    kept = 0
    print("| part | index | seconds | processor | MiB at most |\n| --- | --- | ---: | ---: | ---: |")
    for part, index in order(asked.parts):
        if not index:
            for each in (run, again):
                shutil.rmtree(each / INDEX, ignore_errors=True)
        used = found.setdefault(part, {})["with" if index else "without"] = took(commands[part])
        kept = sum(path.stat().st_size for path in (run / INDEX).glob("*"))
        print(
            f"| {part} | {'yes' if index else 'no'} | {used.wall:.1f} | {used.cpu:.1f} | {used.peak:,.0f} |", flush=True
        )
    print(f"index: {kept / 2**20:,.0f} MiB")
    html = (run / "report.html").stat().st_size if "report" in asked.parts else 0
    if html:
        print(f"report.html: {html / 1e6:.2f} MB")
    if asked.json is not None:
        told = {
            "records": asked.records,
            "bytes": size,
            "html": html,
            "index": kept,
            **{part: {name: used._asdict() for name, used in each.items()} for part, each in found.items()},
        }
        asked.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
