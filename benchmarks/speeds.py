"""How fast the bundled kernels are on a GPU: every kernel, beside what others offer for it, as docs/speed.md.

    python benchmarks/speeds.py measure FILE [--minutes M] [--workers N] [--only WORD]... [--device cuda] [--small]
    python benchmarks/speeds.py page FILE [--write]

`measure` compiles the rows in processes side by side, then times them one after the other in this one: the calls of a row are interleaved
and the caches are overwritten before each. FILE gets a line of JSON for each row, with the medians; what it holds is not timed again. When
the minutes are over the rows that are left stay out. `--small` has sizes for a try in the interpreter (`--device cpu`).
`page` prints docs/speed.md with the tables of FILE; `--write` writes it.
"""

from __future__ import annotations

import argparse
import concurrent.futures as futures
import importlib
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from speed_rows import decoding, dense, prefill, short, sparse
from speed_rows.page import page
from speed_rows.row import Row, Timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from speed_rows.row import Built

_CALLS = 200
_LINES = msgspec.json.Encoder()


def rows(*, small: bool) -> list[Row]:
    """All of the page."""
    return [row for part in (dense, decoding, prefill, sparse, short) for row in part.rows(small)]


def built(row: Row, device: str) -> Built:
    """The calls of a row."""
    module, _, name = row.build.partition(":")
    make: Callable[..., Built] = getattr(importlib.import_module(f"speed_rows.{module}"), name)
    return make(device=device, **row.values)


def compiled(row: Row, device: str) -> str:
    """Call everything once, in a process of its own; why it cannot be called, or empty."""
    try:
        for call in built(row, device).calls.values():
            call()
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


def timed(row: Row, device: str, clock: Callable[[Callable[[], object]], float], rounds: int) -> Timed:
    """The medians of a row and what they mean in its unit."""
    from flashverify.bench.clock import interleaved

    made = built(row, device)
    if made.unit == "us of CPU time":
        spent = {name: _on_the_cpu(call, device) for name, call in made.calls.items()}
        return Timed(row.theme, row.name, made.unit, {n: t / 1e3 for n, t in spent.items()}, spent)
    times = interleaved(made.calls, clock, rounds=rounds, warmup=2)
    medians = {name: statistics.median(each) for name, each in times.items()}
    if made.unit == "TFLOP/s":
        values = {name: made.work / (ms * 1e9) for name, ms in medians.items()}
    elif made.unit == "share of a copy":
        values = {name: medians["copy"] / (2 * ms) for name, ms in medians.items() if name != "copy"}
    else:
        values = {"bundled": medians["bundled"] / (medians["dense"] * made.share)}
    return Timed(row.theme, row.name, made.unit, medians, values)


def _on_the_cpu(call: Callable[[], object], device: str) -> float:
    """Microseconds of a call that is not waited for."""
    import torch

    call()
    if device == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(_CALLS):
        call()
    spent = time.perf_counter() - begun
    if device == "cuda":
        torch.cuda.synchronize()
    return spent / _CALLS * 1e6


def measure(options: argparse.Namespace) -> int:
    """Time the rows that the file does not hold."""
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # here, and in the processes that compile
    end = time.monotonic() + 60 * options.minutes
    done = {(t.theme, t.name) for t in read(options.file)}
    left = [r for r in rows(small=options.small) if (r.theme, r.name) not in done]
    left = [r for r in left if all(word in f"{r.theme} {r.name}" for word in options.only)]
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        reasons = list(pool.map(compiled, left, [options.device] * len(left)))
    print(f"compiled {len(left)} rows, {sum(map(bool, reasons))} of them fail", flush=True)
    from flashverify.bench.clock import clock_of

    clock = clock_of(options.device)
    for row, reason in zip(left, reasons, strict=True):
        if time.monotonic() > end:
            print("the time is over", flush=True)
            break
        found = Timed(row.theme, row.name, reason=reason)
        if not reason:
            found = timed(row, options.device, clock, options.rounds)
        print(
            f"{row.theme}: {row.name}: {reason or ', '.join(f'{n} {v:.3g}' for n, v in found.values.items())}",
            flush=True,
        )
        with options.file.open("ab") as file:
            file.write(_LINES.encode(found) + b"\n")
    return 0


def read(file: Path) -> list[Timed]:
    """The lines of a record; none of a file that is not there."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Timed) for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring, printing = commands.add_parser("measure"), commands.add_parser("page")
    measuring.add_argument("file", type=Path)
    measuring.add_argument("--minutes", type=float, default=10.0)
    measuring.add_argument("--workers", type=int, default=12)
    measuring.add_argument("--rounds", type=int, default=12)
    measuring.add_argument("--only", action="append", default=[], help="rows with this word in their names")
    measuring.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    measuring.add_argument("--small", action="store_true")
    printing.add_argument("file", type=Path)
    printing.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.command == "page":
        return page(read(options.file), write=options.write)
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())
