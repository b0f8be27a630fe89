"""Which processes of a command use the processors, over time: those that judge, those that compile, the one over them, and others.

    python benchmarks/processor_time.py [--every 10] [--json FILE] [--spy PY-SPY --at 60 --spied 2 --for 20 --out FOLDER] -- COMMAND...

Every so many seconds, by the kind of process: how many there are, processor seconds a second in the program and in the kernel, how often
a second one gave its processor up and how often it was taken away. With `--spy` py-spy samples the command and some of the
processes that judge, once, and leaves a file of stacks with counts for each: the command and every second one with the samples in which it waits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_WORKER = "flashverify.campaign.worker.main"
_FIELDS = ("user", "system", "gave_up", "taken")
Usage = tuple[float, float, int, int]


def kind_of(pid: int, root: int, niceness: int) -> str:
    """What a process does, by its command line and its priority."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if _WORKER.encode() in words:
        return "compiles" if niceness > 0 else "judges"
    if b"nvidia-cuda-mps" in b"".join(words):
        return "MPS"
    return "supervises" if pid == root else "other"


def usage(pid: int) -> tuple[int, int, float, float, int, int]:
    """Parent, niceness, seconds in the program and in the kernel, and switches of all threads: given up, taken away."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    switches = [0, 0]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for line in (thread / "status").read_text().splitlines():
            if "voluntary_ctxt_switches" in line:
                switches[line.startswith("nonvoluntary")] += int(line.split()[1])
    return int(stat[1]), int(stat[16]), int(stat[11]) / _TICK, int(stat[12]) / _TICK, switches[0], switches[1]


def sampled(root: int) -> dict[int, tuple[str, Usage]]:
    """The processes of a command now, and services that they share."""
    found: dict[int, tuple[int, str, Usage]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            try:
                parent, niceness, *used = usage(pid)
                found[pid] = parent, kind_of(pid, root, niceness), (used[0], used[1], int(used[2]), int(used[3]))
            except (OSError, IndexError):
                continue  # it has ended

    def belongs(pid: int) -> bool:
        while pid in found and pid != root:
            pid = found[pid][0]
        return pid == root

    return {pid: (kind, used) for pid, (_, kind, used) in found.items() if kind == "MPS" or belongs(pid)}


def rates(
    before: dict[int, tuple[str, Usage]], after: dict[int, tuple[str, Usage]], seconds: float
) -> dict[str, dict[str, float]]:
    """By kind, what its processes used a second."""
    kinds: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(("processes", *_FIELDS), 0.0))
    for pid, (kind, used) in after.items():
        old = before.get(pid, (kind, (0.0, 0.0, 0, 0)))[1]
        kinds[kind]["processes"] += 1
        for name, now, then in zip(_FIELDS, used, old, strict=True):
            kinds[kind][name] += (now - then) / seconds
    return {kind: {name: round(value, 3) for name, value in row.items()} for kind, row in sorted(kinds.items())}


def spied(options: argparse.Namespace, root: int) -> list[subprocess.Popen[bytes]]:
    """Begin to sample the stacks of the command and of those processes that judge which have used most time."""
    used = {pid: sum(usage[:2]) for pid, (kind, usage) in sampled(root).items() if kind == "judges"}
    judging = sorted(used, key=used.__getitem__, reverse=True)[: options.spied]
    common = [options.spy, "record", "-d", str(options.seconds), "-r", "200", "-f", "raw", "--nonblocking"]
    asked = [("command", root, True), *((str(n), pid, n % 2 == 1) for n, pid in enumerate(judging))]
    spies = []
    for name, pid, idle in asked:
        place = ["-p", str(pid), "-o", str(options.out / f"stacks-{name}.txt")]
        spies.append(subprocess.Popen([*common, *place, *(["--idle"] * idle)], stdout=subprocess.DEVNULL))
    return spies


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--spy", help="the program py-spy")
    parser.add_argument("--at", type=float, default=60.0, help="seconds after which it begins")
    parser.add_argument("--spied", type=int, default=2)
    parser.add_argument("--for", dest="seconds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[options.command[:1] == ["--"] :]
    rows, spies = list[dict[str, object]](), list[subprocess.Popen[bytes]]()
    running = subprocess.Popen(command)
    begun = last = time.monotonic()
    before = sampled(running.pid)
    while running.poll() is None:
        time.sleep(0.2)
        now = time.monotonic()
        if options.spy and not spies and now - begun > options.at:
            spies = spied(options, running.pid)
        if now - last >= options.every:
            after = sampled(running.pid)
            rows.append({"at": round(now - begun, 1)} | rates(before, after, now - last))
            print(json.dumps(rows[-1]), flush=True)
            before, last = after, now
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for spy in spies:
        spy.wait()
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())
