"""How many times as many cases a second a search judges on several GPUs of one host as on one of them.

    python benchmarks/gpu_scaling.py [--subject bundled] [--gpus 0,1] [--warm 150] [--seconds 60] [--rounds 1] [--json FILE]

A search on all GPUs fills a cache of kernels first. Then, in turns and with one cache, one GPU with its share of the processors and
all GPUs with all of them are searched, each with another seed; each GPU has as many workers in both. A search is measured from its
twentieth second on, over the cases that were judged by its end. Other work on the machine makes the factor worse than it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path

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


def search(gpus: tuple[str, ...], share: float, cache: Path, options: argparse.Namespace) -> dict[str, object]:
    """One search of `options.seconds` on these GPUs, by that share of the processors."""
    processors, workers = sorted(os.sched_getaffinity(0)), options.per_gpu * len(gpus)
    options = argparse.Namespace(**vars(options) | {"workers": workers, "compilers": workers})
    os.sched_setaffinity(0, processors[: max(1, round(share * len(processors)))])
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-scaling-") as folder:
            config = configured(options.subject, "ahead", cache, Path(folder) / "run", options)
            row = measured(dataclasses.replace(config, gpus=gpus, corpus=False, shrink=False))
    finally:
        os.sched_setaffinity(0, processors)
    stats = row["stats"]
    assert isinstance(stats, dict)
    rate = rate_of(stats["timeline"], options.seconds)
    print(f"GPUs {','.join(gpus)}: {rate:.1f}/s, {stats['compiled']} kernels compiled", flush=True)
    return {"gpus": gpus, "rate": rate, **row}


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

    rows = []
    with tempfile.TemporaryDirectory(prefix="gpu-scaling-kernels-") as kernels:
        cache = Path(kernels)
        search(gpus, 1.0, cache, of(0, options.warm))
        for number in range(options.rounds):
            one = search(gpus[:1], 1 / len(gpus), cache, of(2 * number + 1, options.seconds))
            every = search(gpus, 1.0, cache, of(2 * number + 2, options.seconds))
            rows += [one, every]
            print(f"{every['rate'] / one['rate']:.2f} times as many", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
