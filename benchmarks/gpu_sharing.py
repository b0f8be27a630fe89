"""Cases a second of several processes that share one GPU, with every check of a search and kernels that are compiled.

    python benchmarks/gpu_sharing.py [--subject SPEC] [--processes 1,4,8,14] [--cpu-work 23] [--compile] [--mps] [--json FILE]

Each process judges the same cases over and over, from another one on. Cases whose kernels are not in Triton's cache
(`TRITON_CACHE_DIR`) are left out; with `--compile` each process compiles its share of them first. `--cpu-work` are exponents: the oracle
takes cases of so many multiply-adds at most on the CPU, larger ones on the GPU. A head problem is one head of one batch entry: a launch
judges all of a case's.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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
    from flashverify.checks import accuracy
    from flashverify.launching.compilations import NotCompiled

    torch.set_num_threads(1)
    with bundled.open(options.device, plain=False):
        subject, drawn, ready = bundled.load(options.subject), list(map(parse_case, cases)), []
        for case in drawn[number :: most(options)] if options.compile else ():
            bundled.judge(subject, case, "fuzz")
        answers.put((number, 0, 0, 0.0))
        orders.get()
        with ahead_of(bundled).compiled_only():
            for case in drawn:
                with contextlib.suppress(NotCompiled):
                    bundled.judge(subject, case, "fuzz")
                    ready.append(case)
        answers.put((number, len(ready), 0, 0.0))
        turn = number * len(ready) // most(options)
        while (order := orders.get()) is not None:
            end, accuracy._CPU_WORK = order
            judged = heads = 0
            while time.time() < end:
                case = ready[turn % len(ready)]
                bundled.judge(subject, case, "fuzz")
                turn, judged, heads = turn + 1, judged + 1, heads + case.batch * case.heads_q
            answers.put((number, judged, heads, time.time() - end))


def most(options: argparse.Namespace) -> int:
    """Processes that are started."""
    return max(map(int, options.processes.split(",")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--processes", default="1,4,8,14")
    parser.add_argument("--cpu-work", default="23")
    parser.add_argument("--compile", action="store_true", help="compile what is not in the cache")
    parser.add_argument("--mps", action="store_true", help="share by NVIDIA's Multi-Process Service")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--kinds", type=int, default=6)
    parser.add_argument("--cases", type=int, default=80)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--device", default="cuda", help="cpu: interpreted, with TRITON_INTERPRET=1")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from flashverify.campaign.ahead import ahead_of
    from flashverify.campaign.supervisor.mps import Mps, control_program
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
    service = Mps(control_program(os.environ) if options.mps else None)
    os.environ.update(service.variables())
    print(f"MPS: {service.problem or service.shared}", flush=True)
    for worker in workers:
        worker.start()
    for _ in workers:
        answers.get(timeout=180)
    for order in orders:
        order.put("load")
    ready = [answers.get(timeout=180)[1] for _ in workers]
    print(f"{min(ready)} of {len(cases)} cases are compiled", flush=True)
    rows = []
    for exponent, count in itertools.product(map(int, options.cpu_work.split(",")), counts if min(ready) else ()):
        end = time.time() + options.seconds
        for order in orders[:count]:
            order.put((end, 1 << exponent))
        found = [answers.get(timeout=options.seconds + 60) for _ in range(count)]
        seconds = options.seconds + sum(late for *_, late in found) / count
        rate, heads = (sum(part) / seconds for part in zip(*(answer[1:3] for answer in found), strict=True))
        rows.append(
            {"processes": count, "cpu_work": exponent, "cases_per_second": rate, "head_problems_per_second": heads}
        )
        print(
            f"{count} processes, oracle on the CPU up to 2^{exponent}: {rate:.1f} cases/s ({rate / count:.1f} each), "
            f"{heads:.0f} head problems/s",
            flush=True,
        )
    for order in orders:
        order.put(None)
    for worker in workers:
        worker.join(10)
    service.close()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
