"""The curves of the FlashAttention paper: time, memory and accesses over the length, the size of a tile and the live share of blocks.

    python benchmarks/curves.py [--device cuda] [--out FOLDER]
    python benchmarks/curves.py --from reports/h200/curves/curves.json.xz

Writes the record FOLDER/curves.json.xz, then docs/curves.md and docs/images/curves_*.svg of it; `--from` writes these of an earlier record.
Without a GPU it counts accesses and times nothing. Standard attention is torch's products and softmax in fp16; a length at which it has no
room stands in the record as that. The defaults take less than five minutes on one H200.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from curves_report.counting import Sizes
from curves_report.page import PAGE, page
from curves_report.pictures import pictures
from curves_report.record import Point, Record, read, write

from flashverify.campaign import environment
from flashverify.campaign.supervisor.process import worker_environment
from flashverify.subjects.registry import has_gpu

ROOT = Path(__file__).resolve().parents[1]
LENGTHS = tuple(128 << n for n in range(10))
SPECS = ("bundled", "sdpa-flash")


def counted(sizes: Sizes) -> list[Point]:
    """Accesses, by a process in the interpreter."""
    paths = (ROOT / "benchmarks", ROOT, ROOT / "kernels", ROOT / "oracles")
    surroundings = worker_environment("cpu") | {"PYTHONPATH": ":".join(map(str, paths)), "CUDA_VISIBLE_DEVICES": ""}
    command = (sys.executable, "-m", "curves_report.counting", msgspec.json.encode(sizes).decode())
    done = subprocess.run(command, env=surroundings, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=list[Point])


def timed(lengths: tuple[int, ...], batch: int, end: float, problems: dict[str, str]) -> list[Point]:
    """Times and memory on the GPU.

    Args:
        lengths: ascending.
        batch: sequences of the curve over the length.
        end: of `time.monotonic()`; no length is begun after it.
        problems: is told the sizes in words.
    """
    from curves_report.timing import by_block, by_length, by_share, workload

    work = workload(64, 16, 1024, 64)
    problems["block"] = f"fp16, {work.batch} sequences of {work.seq_q:,} tokens, {work.heads_q} heads of {work.dim}"
    found = by_block(work, (16, 32, 64, 128), "cuda")
    work = workload(1, 16, 8192, 128)
    problems["share"] = f"fp16, {work.seq_q:,} tokens, {work.heads_q} heads of {work.dim}, blocks of 128 x 128"
    found += by_share(work, 128, (1.0, 0.5, 0.25, 0.125, 0.0625), "cuda")
    for n in lengths:
        if time.monotonic() > end:
            print(f"{n} tokens and more: no time is left", flush=True)
            break
        work = workload(batch, 8, n, 64)
        problems["length"] = f"fp16, {work.batch} sequences, {work.heads_q} heads of {work.dim}, no mask"
        try:
            found += by_length(work, SPECS, "cuda")
        except RuntimeError as error:  # a GPU that is lost leaves what was measured before
            print(f"{n} tokens and more: {error}", flush=True)
            break
        print(f"{n} tokens", flush=True)
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if has_gpu() else "cpu")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], metavar="N", help="tokens that are timed at most")
    parser.add_argument("--minutes", type=float, default=5.0, help="after them no length is begun")
    parser.add_argument("--batch", type=int, default=16, metavar="B", help="sequences of the curve over the length")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="of the record [default: reports/h200/curves, or reports/cpu/curves]"
    )
    parser.add_argument("--from", dest="record", type=Path, metavar="RECORD", help="measure nothing")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", default="{}", metavar="JSON", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record is None:
        if options.device == "cuda" and not has_gpu():
            print("curves: error: no NVIDIA GPU is available: --device cpu counts accesses", file=sys.stderr)
            return 3
        started, sizes = time.monotonic(), msgspec.json.decode(options.sizes, type=Sizes)
        problems = {"counted": str(sizes)}
        points = counted(sizes)
        if options.device == "cuda":
            lengths = tuple(n for n in LENGTHS if n <= options.longest)
            points += timed(lengths, options.batch, started + 60 * options.minutes, problems)
        seconds = time.monotonic() - started
        folder = options.out or ROOT / "reports" / ("h200" if options.device == "cuda" else "cpu") / "curves"
        options.record = folder / "curves.json.xz"
        found = environment.collect(options.device)
        write(Record(device=options.device, environment=found, problems=problems, points=points, seconds=seconds), options.record)  # fmt: skip
        print(f"record: {options.record}, {seconds:.0f} s")
    record = read(options.record)
    for name, text in pictures(record).items():
        (options.docs / name).parent.mkdir(parents=True, exist_ok=True)
        (options.docs / name).write_text(text, encoding="utf-8")
    (options.docs / PAGE).write_text(page(record), encoding="utf-8")
    print(f"page: {options.docs / PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
