"""Cases per second on the committed list of 200 cases, with every check of a fuzzed case.

    python benchmarks/throughput.py [--subject bundled] [--workers 2] [--rounds 2] [--stock] [--json FILE]
    python benchmarks/throughput.py --drawn 300 [--seed 3] [--subject bundled] [--every-launch] [--json FILE]
    python benchmarks/throughput.py --drawn 60 --turns 2 [--seed 3] [--subject bundled] [--json FILE]

The list is judged once to warm up (on a GPU: to compile), then `--rounds` times; the median round counts. `--stock` judges the
same list once more in plain Triton's interpreter, in the same run, for the ratio; its bf16 cases are unsupported there.

`--drawn` judges cases that a search draws, in one process, and splits their processor time by the parts of the harness and by
check (`time_parts.py`). As many cases go before uncounted. Other loads of the machine change these times too: of two states of the
code those that were measured in turns can be compared. `--every-launch` runs the launches of the checks `padding`, `determinism`, `relations` and
`reuse` too that would load what the base pass loaded. `--turns` judges each case once, and then so many times each without and with it, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

_WORKER: dict[str, Any] = {}


def open_worker(device: str, spec: str, stock: bool) -> None:
    """Set a worker process up as the campaign does; an empty `spec` loads no subject."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from flashverify.campaign.toolkit import bundled
    from flashverify.campaign.worker.collector import settle_collector

    torch.set_num_threads(1)
    stack = ExitStack()
    if not stock:
        stack.enter_context(bundled.open(device, plain=False))
    _WORKER.update(stack=stack, toolkit=bundled, subject=bundled.load(spec) if spec else None)
    settle_collector()


def judge(text: str) -> tuple[bool, bool, float]:
    """(judged, failed, seconds of processor time) of one case."""
    from flashverify.case.text import parse_case

    begun = time.process_time()
    result = _WORKER["toolkit"].judge(_WORKER["subject"], parse_case(text), "fuzz")
    return result.unsupported is None, bool(result.failures), time.process_time() - begun


def measure(device: str, options: argparse.Namespace, *, stock: bool, rounds: int) -> dict[str, float]:
    """Median seconds of a round, and what was judged."""
    from flashverify.case.space.matrix import benchmark_cases

    cases = [str(case) for case in benchmark_cases()]
    arguments = (device, options.subject, stock)
    with ProcessPoolExecutor(options.workers, get_context("spawn"), open_worker, arguments) as pool:
        answers = list(pool.map(judge, cases))
        seconds, busy = [], []
        for _ in range(rounds):
            begun = time.perf_counter()
            answers = list(pool.map(judge, cases))
            seconds.append(time.perf_counter() - begun)
            busy.append(sum(spent for _, _, spent in answers))
    judged, failed, _ = (sum(column) for column in zip(*answers, strict=True))
    median = statistics.median(seconds)
    return {
        "seconds": median,
        "judged": judged,
        "failed": failed,
        "cases_per_second": judged / median,
        "cases_per_processor_second": judged / statistics.median(busy),
    }


def measure_drawn(device: str, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of processor time that a drawn case takes, by part and by check."""
    from time_parts import PARTS, drawn_time, every_launch

    open_worker(device, "", stock=False)
    with _WORKER["stack"], every_launch() if options.every_launch else nullcontext():
        clock, checks = drawn_time(_WORKER["toolkit"], options.subject, device, options.drawn, options.seed)
    judged = clock.calls["checks"]
    parts = {part: 1e3 * clock.seconds[part] / judged for part in PARTS}
    return {
        "judged": judged,
        "cases_per_processor_second": 1e3 / sum(parts.values()),
        "ms_by_part": parts,
        "ms_by_check": {name: 1e3 * spent / judged for name, spent in checks.seconds.most_common()},
        "passes": clock.calls["host"] / judged,
        "launches": clock.calls["kernels"] / judged,
        "left_out": clock.calls["left out"] / judged,
    }


def measure_turns(device: str, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of processor time of a drawn case that was judged before: launches that need not run left out, and every one run."""
    from time_parts import every_launch

    from flashverify.campaign.worker.search import draw

    open_worker(device, options.subject, stock=False)
    toolkit, subject, spent = _WORKER["toolkit"], _WORKER["subject"], {"left out": 0.0, "run": 0.0}
    with _WORKER["stack"]:
        cases = draw(toolkit.strategy(subject, device), options.drawn, options.seed)
        for number, case in enumerate(cases):
            toolkit.judge(subject, case, "fuzz")
            for turn in range(2 * options.turns):
                run = (number + turn + turn // 2) % 2 == 1
                with every_launch() if run else nullcontext():
                    begun = time.process_time()
                    toolkit.judge(subject, case, "fuzz")
                    spent["run" if run else "left out"] += time.process_time() - begun
    ms = {way: 1e3 * seconds / len(cases) / options.turns for way, seconds in spent.items()}
    saved = 100 * (1 - ms["left out"] / ms["run"])
    print(
        f"{len(cases)} drawn cases: {ms['left out']:.1f} ms, {ms['run']:.1f} with every launch run: {saved:.1f} % less"
    )
    return {"judged": len(cases), "turns": options.turns, "ms": ms}


def print_drawn(row: dict[str, Any]) -> None:
    """The split as two tables."""
    from time_parts import PARTS

    print(
        f"{row['judged']} drawn cases: {row['cases_per_processor_second']:.1f} a second of processor time, "
        f"{row['passes']:.1f} passes and {row['launches']:.1f} launches a case, "
        f"of which {row['left_out']:.1f} need not run"
    )
    for part, spent in row["ms_by_part"].items():
        print(f"  {spent:8.2f} ms  {part}: {PARTS[part]}")
    print("of which, with their passes:")
    for name, spent in row["ms_by_check"].items():
        print(f"  {spent:8.2f} ms  {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--drawn", type=int, default=0, help="judge so many drawn cases, and split their time")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--every-launch", action="store_true", help="with --drawn: run launches that need not run")
    parser.add_argument("--turns", type=int, default=0, help="with --drawn: without and with that, so many times each")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from flashverify.subjects import has_gpu

    device = "cuda" if has_gpu() else "cpu"
    if options.drawn:
        row = (measure_turns if options.turns else measure_drawn)(device, options)
        if not options.turns:
            print_drawn(row)
        if options.json:
            options.json.write_text(json.dumps({"device": device} | row, indent=1) + "\n", encoding="utf-8")
        return 0
    rows = {"flashverify": measure(device, options, stock=False, rounds=options.rounds)}
    if options.stock and device == "cpu":
        rows["stock"] = measure(device, options, stock=True, rounds=1)
    for name, row in rows.items():
        print(
            f"{name}: {row['judged']} of 200 cases judged in {row['seconds']:.1f} s by {options.workers} processes on {device}: "
            f"{row['cases_per_second']:.1f} cases/s, {row['cases_per_processor_second']:.1f} a second of processor time, "
            f"{row['failed']} failed"
        )
    if "stock" in rows:
        print(f"ratio: {rows['flashverify']['cases_per_second'] / rows['stock']['cases_per_second']:.1f}")
    if options.json:
        options.json.write_text(
            json.dumps({"device": device, "workers": options.workers} | rows, indent=1) + "\n", encoding="utf-8"
        )
    return int(any(row["failed"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
