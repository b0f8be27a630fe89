"""Cases a second of several processes that share one GPU, with every check of a search and kernels that are compiled.

    python benchmarks/gpu_sharing.py [--subject SPEC] [--processes 1,4,8,14] [--seconds 6] [--kinds N] [--cases N] [--json FILE]

Each process judges the same cases over and over, from another one on. Cases whose kernels are not in Triton's cache
(`TRITON_CACHE_DIR`) are left out. A head problem is one head of one batch entry: a launch judges all of a case's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any


def judging(number: int, options: argparse.Namespace, cases: list[str], orders: Any, answers: Any) -> None:
    """Judge the cases that are compiled once, then for each order (seconds) as many as the time allows."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from flashverify.campaign.ahead import ahead_of
    from flashverify.campaign.toolkit import bundled
    from flashverify.case.text import parse_case
    from flashverify.launching.compilations import NotCompiled

    torch.set_num_threads(1)
    with bundled.open(options.device, plain=False), ahead_of(bundled).compiled_only():
        subject, ready = bundled.load(options.subject), []
        for case in map(parse_case, cases):
            with contextlib.suppress(NotCompiled):
                bundled.judge(subject, case, "fuzz")
                ready.append(case)
        answers.put((number, len(ready), 0, 0.0))
        turn = number * len(ready) // max(map(int, options.processes.split(",")))
        while (end := orders.get()) > 0:
            judged = heads = 0
            while time.time() < end:
                case = ready[turn % len(ready)]
                bundled.judge(subject, case, "fuzz")
                turn, judged, heads = turn + 1, judged + 1, heads + case.batch * case.heads_q
            answers.put((number, judged, heads, time.time() - end))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--processes", default="1,4,8,14")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--kinds", type=int, default=6)
    parser.add_argument("--cases", type=int, default=80)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--device", default="cuda", help="cpu: interpreted, with TRITON_INTERPRET=1")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from flashverify.campaign.ahead import ahead_of
    from flashverify.campaign.toolkit import bundled
    from flashverify.campaign.worker.search import draw
    from flashverify.case.text import format_case

    subject = bundled.load(options.subject)
    kinds = min(options.kinds, ahead_of(bundled).kinds(subject)[1])
    strategy = ahead_of(bundled).of_kinds(subject, range(kinds)) if kinds else bundled.strategy(subject, options.device)
    cases = [format_case(case) for case in draw(strategy, options.cases, options.seed)]
    counts = list(map(int, options.processes.split(",")))
    context = multiprocessing.get_context("spawn")
    answers, orders = context.Queue(), [context.Queue() for _ in range(max(counts))]
    workers = [
        context.Process(target=judging, args=(number, options, cases, order, answers), daemon=True)
        for number, order in enumerate(orders)
    ]
    for worker in workers:
        worker.start()
    ready = [answers.get(timeout=180)[1] for _ in workers]
    print(f"{min(ready)} of {len(cases)} cases are compiled", flush=True)
    rows = []
    for count in counts if min(ready) else ():
        begun = time.time()
        for order in orders[:count]:
            order.put(begun + options.seconds)
        found = [answers.get(timeout=options.seconds + 60) for _ in range(count)]
        seconds = options.seconds + sum(late for *_, late in found) / count
        rate, heads = (sum(part) / seconds for part in zip(*(answer[1:3] for answer in found), strict=True))
        rows.append({"processes": count, "cases_per_second": rate, "head_problems_per_second": heads})
        print(
            f"{count} processes: {rate:.1f} cases/s ({rate / count:.1f} each), {heads:.0f} head problems/s", flush=True
        )
    for order in orders:
        order.put(0.0)
    for worker in workers:
        worker.join(10)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
