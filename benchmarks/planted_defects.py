"""How fast each planted defect is found on this machine, and how small its case becomes.

    python benchmarks/planted_defects.py [--limit 180] [--seed 0] [--workers 2] [--only NAME ...] [--json FILE]

Each mutant is built into a folder of its own and fuzzed by the ordinary command; the campaign is ended when a finding in one
of the outputs that the mutant must show has been made minimal. Exit code 1 where a mutant is missed.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.campaign.store import open_run
from flashverify.case.text import parse_case
from flashverify.errors import FlashverifyError
from flashverify.mutants import BANK, Mutant, build_mutant

if TYPE_CHECKING:
    from flashverify.judge.record import FindingRecord

GRACE = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds that a search may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[mutant.name for mutant in BANK])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [hunt(m, options) for m in BANK if options.only is None or m.name in options.only]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    missed = [row["mutant"] for row in rows if not row["found"]]
    print(
        f"{len(rows) - len(missed)} of {len(rows)} found within {options.limit:g} s"
        + (f"; missed: {missed}" if missed else "")
    )
    return 1 if missed else 0


def hunt(mutant: Mutant, options: argparse.Namespace) -> dict[str, object]:
    """Fuzz one mutant until it is found and minimal, or the limit is over."""
    with tempfile.TemporaryDirectory() as folder:
        spec = build_mutant(mutant, Path(folder))
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "flashverify", "fuzz", "--subject", spec, "--out", str(run), "--no-report"]
        command += [
            "--minutes",
            str(options.limit / 60),
            "--seed",
            str(options.seed),
            "--workers",
            str(options.workers),
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + options.limit + GRACE
        while process.poll() is None and time.monotonic() < deadline and not _minimal(run, mutant):
            time.sleep(0.5)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()
        return _row(mutant, run)


def _findings(run: Path, mutant: Mutant) -> list[FindingRecord]:
    """Findings in the outputs that the mutant must show, first seen first."""
    try:
        found = [finding.record for finding in open_run(run).findings]
    except (FlashverifyError, OSError):  # the run has not begun
        return []
    return sorted((f for f in found if f.key.output in mutant.outputs), key=lambda f: f.seconds)


def _minimal(run: Path, mutant: Mutant) -> bool:
    return any(f.confirmation.repeats for f in _findings(run, mutant))


def _row(mutant: Mutant, run: Path) -> dict[str, object]:
    found = _findings(run, mutant)
    first = found[0] if found else None
    smallest = min((f for f in found if f.confirmation.repeats), key=lambda f: _size(f.case), default=first)
    row: dict[str, object] = {"mutant": mutant.name, "subject": mutant.subject, "found": first is not None}
    if first is not None and smallest is not None:
        row |= {
            "seconds": round(first.seconds, 1),
            "check": f"{first.key.check} {first.key.error}",
            "output": first.key.output,
            "elements": _size(smallest.case),
            "confirmed": f"{smallest.confirmation.failed}/{smallest.confirmation.repeats}",
            "case": smallest.case,
        }
    print("  ".join(f"{value}" for value in row.values()), flush=True)
    return row


def _size(text: str) -> int:
    """Elements of q and k."""
    case = parse_case(text)
    return case.batch * (case.heads_q * case.seq_q + case.heads_kv * case.seq_k) * case.dim_qk


if __name__ == "__main__":
    sys.exit(main())
