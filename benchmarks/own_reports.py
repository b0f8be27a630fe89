"""The accuracy of the bundled kernels, of SDPA's backends and of Triton's tutorial 06: measured, and shown in docs/accuracy.md.

    python benchmarks/own_reports.py [--minutes 5] [--tutorial FILE] [--device cuda] [--out FOLDER]
    python benchmarks/own_reports.py --from reports/h200/own/accuracy.json.xz

Writes the record FOLDER/accuracy.json.xz, then docs/accuracy.md and docs/images/accuracy.svg of it; `--from` writes these two of an earlier
record. The kernels share the processors, and all end with the time. FILE is
python/tutorials/06-fused-attention.py of Triton's sources; the record holds its hash. Exit code 1: an element is outside its bound.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from accuracy_report.page import IMAGE, PAGE, page
from accuracy_report.picture import picture
from accuracy_report.record import Kernel, Record, read, write

from flashverify.campaign import environment
from flashverify.campaign.supervisor.process import worker_environment
from flashverify.gallery.place import TUTORIAL
from flashverify.subjects.registry import REGISTERED, has_gpu

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL_SPEC = "flashverify.gallery.kernels.tutorial:attention"
SPECS = {
    "cuda": ("bundled", "bundled-decode", "bundled-chunked", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient", "sdpa-math"),
    "cpu": ("bundled", "bundled-decode", "torch-cpu"),
}
_GRACE = 90.0
"""Seconds in which a process ends after its time; a case on which it hangs is given up."""


def measured(spec: str, device: str, seconds: float, seed: int, folder: Path, tutorial: str) -> Kernel:
    """What one process finds."""
    file = folder / f"{spec.replace(':', '.')}-{seed}.json"
    path = os.pathsep.join(map(str, (ROOT / "benchmarks", ROOT, ROOT / "kernels", ROOT / "oracles")))
    surroundings = worker_environment(device) | {"PYTHONPATH": path, TUTORIAL: tutorial}
    words = (spec, str(file), "--device", device, "--seconds", str(seconds), "--seed", str(seed))
    reason = ""
    try:
        done = subprocess.run((sys.executable, "-m", "accuracy_report.measuring", *words), env=surroundings, timeout=seconds + _GRACE, capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]
    except subprocess.TimeoutExpired:
        reason = "a case did not end"
    found = msgspec.json.decode(file.read_bytes(), type=Kernel) if file.exists() else Kernel(spec, "")
    found.reason = reason
    return found


def shared_out(specs: tuple[str, ...], processes: int) -> dict[str, int]:
    """How many processes each kernel has: one, and those that are left go round kernels that are compiled or interpreted, bundled first."""
    found = dict.fromkeys(specs, 1)
    slow = [spec for spec in specs if not spec.startswith(("sdpa-", "torch-"))] or list(specs)
    order = itertools.cycle([*(spec for spec in slow if spec == "bundled"), *slow])
    for spec in itertools.islice(order, max(0, processes - len(specs))):
        found[spec] += 1
    return found


def run(device: str, minutes: float, seed: int, specs: tuple[str, ...], tutorial: str, processes: int) -> Record:
    """Measure all kernels at the same time."""
    end = time.monotonic() + 60 * minutes
    shares = shared_out(specs, processes)
    summaries = {entry.name: entry.summary for entry in REGISTERED} | {
        TUTORIAL_SPEC: "fused attention of Triton's tutorials, as published"
    }
    with tempfile.TemporaryDirectory(prefix="own-reports-") as place, ThreadPoolExecutor(sum(shares.values())) as pool:
        futures = {
            spec: [
                pool.submit(measured, spec, device, end - time.monotonic(), seed + 1000 * n, Path(place), tutorial)
                for n in range(shares[spec])
            ]
            for spec in specs
        }
        kernels = []
        for spec, parts in futures.items():
            whole = Kernel("tutorial 06" if spec == TUTORIAL_SPEC else spec, summaries.get(spec, ""))
            for part in parts:
                whole.merge(part.result())
            kernels.append(whole)
            print(f"{whole.name}: {whole.cases:,} cases, {whole.raised} raised {whole.reason or whole.raised_first}", flush=True)  # fmt: skip
    if device == "cuda":
        import torch  # noqa: F401  (the environment then names the GPU)
    digest = hashlib.sha256(Path(tutorial).read_bytes()).hexdigest() if tutorial else ""
    return Record(device, minutes, seed, environment.collect(device), kernels, digest)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if has_gpu() else "cpu")
    parser.add_argument("--subject", action="append", metavar="SPEC", help="repeatable; by default those of the device")
    parser.add_argument("--tutorial", default="", metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="in all")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="of the record [default: reports/h200/own, or reports/cpu/own]"
    )
    parser.add_argument("--from", dest="record", type=Path, metavar="RECORD", help="measure nothing")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record is None:
        specs = tuple(options.subject or SPECS[options.device]) + ((TUTORIAL_SPEC,) if options.tutorial else ())
        tutorial = str(Path(options.tutorial).resolve()) if options.tutorial else ""
        found = run(options.device, options.minutes, options.seed, specs, tutorial, options.processes)
        folder = options.out or ROOT / "reports" / ("h200" if options.device == "cuda" else "cpu") / "own"
        options.record = folder / "accuracy.json.xz"
        write(found, options.record)
        print(f"record: {options.record}")
    record = read(options.record)
    (options.docs / IMAGE).parent.mkdir(parents=True, exist_ok=True)
    (options.docs / IMAGE).write_text(picture(record), encoding="utf-8")
    (options.docs / PAGE).write_text(page(record), encoding="utf-8")
    print(f"page: {options.docs / PAGE}")
    return int(any(row.outside for kernel in record.kernels for row in kernel.rows))


if __name__ == "__main__":
    sys.exit(main())
