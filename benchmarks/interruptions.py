"""What a campaign loses, judges twice or refuses after it was killed or interrupted at random points and run again.

    python benchmarks/interruptions.py [--tries 8] [--seed 0] [--kinds fuzz run] [--workers 1 2] [--signals KILL INT WORKER]

Each try runs a campaign over a toy subject, ends it once or twice at a random point, and repeats the same command until it is
over. `KILL` and `INT` go to the supervisor, `WORKER` is a `kill -9` of one of its workers. What is stored then is compared with a
run of one worker that nobody disturbed.

Columns: `lost`, cases that the undisturbed run judged and this one did not; `twice`, results beyond those; `again`, cases that ran
more often than they are stored, of which each end allows one a worker, and a dead worker those that minimise it; `refused`, commands that refused to go on; `silent`, ends
with an exit code of a verdict over a part of the lists.
"""

# ruff: noqa: ARG002, D102

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import strategies as st

from flashverify.campaign.commands.signals import ending_signals
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.case import Case, Values
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import CaseResult, OutputStats, Status, Verdict

LOG = "INTERRUPTIONS_LOG"
MATRIX = tuple(Case(seq_q=q, seq_k=k) for q in range(1, 11) for k in range(1, 8))
SIZES = {"fuzz": 140, "run": len(MATRIX)}
"""Cases of an undisturbed campaign, by kind."""


class Toy:
    """A subject that is right; each of its cases takes some milliseconds and is noted before it runs."""

    name = "toy"

    def open(self, device, *, plain, numerics):
        return contextlib.nullcontext()

    def require_findable(self, spec):
        pass

    def load(self, spec):
        return self

    def form(self, subject):
        return ""

    def strategy(self, subject, device):
        size = st.integers(1, 64)
        return st.builds(Case, seq_q=size, seq_k=size, values=st.builds(Values, seed=st.integers(0, 2**32)))

    def matrix(self, subject, device):
        return MATRIX

    def refusal(self, subject, case):
        return None if not (case.mask.parts() or case.logits.names() or case.storage.page_size) else "a part"

    def judge(self, subject, case, plan):
        log = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, f"{case}\n".encode())
        os.close(log)
        time.sleep(0.005)
        stats = (OutputStats("o", "end-to-end", 4, worst=(case.seq_k / 128).hex(), telling=4),)
        return CaseResult(str(case), "toy", "toy", (Verdict("accuracy", Status.PASS),), stats)


toolkit = Toy()


def config(kind: str, workers: int, out: Path, log: Path) -> CampaignConfig:
    most, variables = (SIZES["fuzz"] if kind == "fuzz" else None), {LOG: str(log)}
    return CampaignConfig(
        kind=kind, subjects=("toy",), out=out, device="cpu", workers=workers, seed=7, max_cases=most, corpus=kind == "fuzz",
        batch=40, toolkit="interruptions:toolkit", environment=variables,
    )  # fmt: skip


def drive(kind: str, workers: int, out: Path, log: Path) -> int:
    """One command: the campaign with the signals of the command line."""
    try:
        engine = Engine(config(kind, workers, out, log))
        with ending_signals(lambda code: engine.stop("interrupted", code)):
            summary = engine.run()
    except FlashverifyError as error:
        print(error, flush=True)
        return 2
    print(json.dumps({"part": getattr(summary, "part", ""), "cases": summary.cases}), flush=True)
    return summary.exit_code


def command(kind: str, workers: int, out: Path, log: Path) -> subprocess.Popen[str]:
    words = [sys.executable, __file__, "--drive", kind, str(workers), str(out), str(log)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def disturb(process: subprocess.Popen[str], how: str, pick: random.Random, log: Path) -> None:
    """End it, or one of its workers, after a random number of cases."""
    before = lines(log)
    after, deadline = pick.randrange(0, 90), time.monotonic() + 30
    while process.poll() is None and lines(log) - before < after and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(pick.random() * 0.01)
    with contextlib.suppress(ProcessLookupError, FileNotFoundError, IndexError):
        if how == "WORKER":
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
            os.kill(int(pick.choice(children)), signal.SIGKILL)
        else:
            process.send_signal(getattr(signal, f"SIG{how}"))


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def stored(out: Path) -> Counter[str]:
    return Counter(result.case for result in open_run(out).results())


def attempt(kind: str, workers: int, how: str, pick: random.Random, reference: Counter[str]) -> Counter[str]:
    """One try; what went wrong, counted."""
    found: Counter[str] = Counter(tries=1)
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder) / "run", Path(folder) / "log"
        ends = pick.choice((1, 2))
        for number in range(ends + 1):
            process = command(kind, workers, out, log)
            if number < ends:
                disturb(process, how, pick, log)
            printed, _ = process.communicate(timeout=120)
            found["refused"] += process.returncode in (2, 3)
            if process.returncode in (0, 1):
                short = sum(stored(out).values()) < SIZES[kind] and '"part": ""' in printed
                found["silent"] += short
                break
        judged, ran = stored(out), Counter(log.read_text(encoding="utf-8").splitlines())
        found["lost"] = (reference - judged).total()
        found["twice"] = (judged - reference).total()
        found["again"] = (ran - judged).total()
    return found


def main() -> int:
    if sys.argv[1:2] == ["--drive"]:
        kind, workers, out, log = sys.argv[2:]
        return drive(kind, int(workers), Path(out), Path(log))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=8, help="of each row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=["fuzz", "run"], choices=["fuzz", "run"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--signals", nargs="+", default=["KILL", "INT", "WORKER"])
    options = parser.parse_args()
    pick = random.Random(options.seed)
    columns = ("tries", "lost", "twice", "again", "refused", "silent")
    print(f"| kind | workers | ended by | cases | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 4) + "|", flush=True)
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as folder:
            command(kind, 1, Path(folder) / "run", Path(folder) / "log").communicate(timeout=120)
            reference = stored(Path(folder) / "run")
        for workers in options.workers:
            for how in options.signals:
                row: Counter[str] = Counter()
                for _ in range(options.tries):
                    row.update(attempt(kind, workers, how, pick, reference))
                numbers = " | ".join(str(row[name]) for name in columns)
                print(f"| {kind} | {workers} | {how} | {reference.total()} | {numbers} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
