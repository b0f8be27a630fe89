"""How many times as many cases a second a search judges on several GPUs of one host as on one of them.

    python benchmarks/gpu_scaling.py [--subject bundled] [--gpus 0,1] [--warm 150] [--seconds 60] [--rounds 1] [--json FILE]

A search on all GPUs fills a cache of kernels first. Then, in turns and with one cache:

    one      a search on one GPU, by its share of the processors
    every    a search on all GPUs, by all processors
    apart    a search of its own on each GPU, by a share of the processors each, all at once

Each has another seed, and each GPU as many workers in all of them. `every / one` is the factor. `apart / one` is what the machine allows:
processors that share caches or power do less beside others. A search is measured from its twentieth second on, over the cases that were
judged by its end. Other work on the machine makes the factor worse than it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gpu_campaign import configured, measured

from flashverify.campaign.environment import resolve_device
from flashverify.campaign.gpus import PER_GPU

_BEGIN = 20.0
"""Seconds of a search that are not measured: its workers start, and load kernels."""


def rate_of(timeline: list[list[float]], seconds: float) -> float:
    """Cases a second between the twentieth second and the end of the search, both at the nearest intervals inside."""
    inside = [(at, cases) for at, cases, *_ in timeline if _BEGIN <= at <= seconds]
    if len(inside) < 2:
        raise SystemExit(f"--seconds={seconds:g} is not accepted: so few that nothing was measured")
    (begun, before), (ended, after) = inside[0], inside[-1]
    return (after - before) / (ended - begun)


def shares(processors: list[int], count: int) -> list[list[int]]:
    """As many parts of the processors, which lie side by side; at least one processor each."""
    most = max(1, len(processors) // count)
    return [processors[first : first + most] or processors for first in range(0, most * count, most)]


def search(gpus: tuple[str, ...], processors: list[int], cache: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One search of `options.seconds` on these GPUs, by these processors."""
    before, workers = os.sched_getaffinity(0), options.per_gpu * len(gpus)
    options = argparse.Namespace(**vars(options) | {"workers": workers, "compilers": workers})
    os.sched_setaffinity(0, processors)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-scaling-") as folder:
            config = configured(options.subject, "ahead", cache, Path(folder) / "run", options)
            row = measured(dataclasses.replace(config, gpus=gpus, corpus=False, shrink=False))
    finally:
        os.sched_setaffinity(0, before)
    stats = row["stats"]
    rate = rate_of(stats["timeline"], options.seconds)
    print(f"GPUs {','.join(gpus)}: {rate:.1f}/s, {stats['compiled']} kernels compiled", flush=True)
    return {"gpus": gpus, "rate": rate, **row}


def apart(gpus: tuple[str, ...], cache: Path, options: list[argparse.Namespace]) -> list[dict[str, Any]]:
    """A search on each GPU by its share of the processors, all at once, each from a process of its own."""
    parts = shares(sorted(os.sched_getaffinity(0)), len(gpus))
    with ProcessPoolExecutor(len(gpus), get_context("spawn")) as pool:
        started = [
            pool.submit(search, (gpu,), part, cache, own) for gpu, part, own in zip(gpus, parts, options, strict=True)
        ]
        return [each.result() for each in started]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--gpus", default="0,1", help="two or more, as CUDA_VISIBLE_DEVICES names them")
    parser.add_argument("--per-gpu", type=int, default=PER_GPU, help="workers of each")
    parser.add_argument("--warm", type=float, default=150.0, help="seconds of the search that fills the cache")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search that is measured")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    gpus = tuple(options.gpus.split(","))
    if len(gpus) < 2:
        parser.error(f"--gpus={options.gpus} is not accepted: two or more")
    resolve_device("cuda")

    def of(seed: int, seconds: float) -> argparse.Namespace:
        return argparse.Namespace(**vars(options) | {"seed": options.seed + seed, "seconds": seconds, "mps": True})

    rows, processors = [], sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="gpu-scaling-kernels-") as kernels:
        cache, seeds = Path(kernels), itertools.count()
        search(gpus, processors, cache, of(next(seeds), options.warm))
        for _ in range(options.rounds):
            one = search(gpus[:1], shares(processors, len(gpus))[0], cache, of(next(seeds), options.seconds))
            every = search(gpus, processors, cache, of(next(seeds), options.seconds))
            each = apart(gpus, cache, [of(next(seeds), options.seconds) for _ in gpus])
            rows += [one, every, *each]
            allowed = sum(row["rate"] for row in each) / one["rate"]
            print(f"{every['rate'] / one['rate']:.2f} times as many; searches apart {allowed:.2f}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
