"""Speed of the kernels of this checkout beside those of another one, on a GPU, in one process and one run.

    python benchmarks/kernel_change.py OTHER/kernels [--rounds N] [--out FILE]

`OTHER/kernels` is the folder `kernels` of another checkout (`git worktree add OTHER REVISION`). Its package is copied and imported
under another name. Each workload runs on both in turn, in rounds whose order alternates, and the median of the rounds counts;
the outputs must be equal bit for bit. Workloads: forward and backward at D = 64 and 128, full and causal, 4096 tokens, fp16;
decoding of one query over 8192 keys; and a tiny problem, whose time is that of the host: checks, binding and launch.

Prints microseconds and the ratio new / old, which should stay within 0.98 and 1.02, and writes all of it as JSON. It needs torch,
triton and a GPU, nothing else.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE, OTHER = "flashverify_kernels", "other_kernels"
TOKENS, HEADS = 4096, 16
MILLISECONDS = 20.0
"""GPU time of one round of one workload."""
CALLS = 300
"""Calls of one round of a tiny problem."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="folder `kernels` of the other checkout")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("kernel_change.json"))
    parser.add_argument("--only", default="", help="only workloads whose name contains this text")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copied(arguments.other / PACKAGE, Path(folder) / OTHER)
        sys.path[:0] = [str(Path(__file__).parents[1] / "kernels"), folder]
        packages = {"new": importlib.import_module(PACKAGE), "old": importlib.import_module(OTHER)}
        rows = [
            measured(name, {which: make(package) for which, package in packages.items()}, clock, arguments.rounds)
            for name, make, clock in workloads()
            if arguments.only in name
        ]
    record = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "rounds": arguments.rounds,
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{record['device']}, torch {record['torch']}, triton {record['triton']}, {arguments.rounds} rounds")
    print(f"{'workload':34} {'old us':>10} {'new us':>10} {'new/old':>8}  equal")
    for row in rows:
        print(f"{row['name']:34} {row['old']:10.2f} {row['new']:10.2f} {row['ratio']:8.4f}  {row['equal']}")


def copied(source: Path, target: Path) -> None:
    """Copy a package under the name of `target`.

    Raises:
        SystemExit: there is no package.
    """
    if not (source / "__init__.py").is_file():
        raise SystemExit(f"other: expected the folder `kernels` of a checkout, found no {source / '__init__.py'}")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for file in target.rglob("*.py"):
        file.write_text(file.read_text().replace(PACKAGE, target.name))


def workloads() -> Iterator[tuple[str, Callable[[Any], Callable[[], Any]], Callable[..., float]]]:
    """(name, what makes a call of a package, how it is timed)."""
    for d in (64, 128):
        for causal in (None, "top-left"):
            tensors = normal(4, 1, HEADS, TOKENS, d)
            label = f"D={d} {'causal' if causal else 'full'}"
            yield f"forward {label}", forward_of(tensors, causal), on_device
            yield f"backward {label}", backward_of(tensors, causal), on_device
    q, (k, v) = normal(1, 8, 32, 1, 128)[0], normal(2, 8, 8, 2 * TOKENS, 128)
    yield "decode D=128 8192 keys", lambda package: lambda: package.decode(q, k, v, return_lse=True), on_device
    tiny = normal(4, 1, 1, 16, 64)
    one, (keys, values) = normal(1, 1, 1, 1, 64)[0], normal(2, 1, 1, 64, 64)
    yield "host: forward of 16 tokens", forward_of(tiny, "top-left"), on_host
    yield "host: backward of 16 tokens", backward_of(tiny, "top-left"), on_host
    yield (
        "host: decode of 64 keys",
        lambda package: lambda: package.decode(one, keys, values, n_splits=1, return_lse=True),
        on_host,
    )


def normal(count: int, *shape: int) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    return [torch.randn(*shape, generator=generator, device="cuda", dtype=torch.float16) for _ in range(count)]


def forward_of(tensors: list[torch.Tensor], causal: str | None) -> Callable[[Any], Callable[[], Any]]:
    q, k, v, _ = tensors

    def make(package: Any) -> Callable[[], Any]:
        options = package.Options(causal=causal)
        return lambda: package.forward(q, k, v, options)

    return make


def backward_of(tensors: list[torch.Tensor], causal: str | None) -> Callable[[Any], Callable[[], Any]]:
    q, k, v, do = tensors

    def make(package: Any) -> Callable[[], Any]:
        options = package.Options(causal=causal)
        o, lse2 = package.forward(q, k, v, options)
        return lambda: package.backward(do, q, k, v, o, lse2, options)

    return make


def measured(
    name: str, calls: dict[str, Callable[[], Any]], clock: Callable[..., float], rounds: int
) -> dict[str, Any]:
    """The medians of both packages over rounds whose order alternates."""
    outputs = {which: [x for x in call() if x is not None] for which, call in calls.items()}
    equal = all(torch.equal(x, y) for x, y in zip(outputs["new"], outputs["old"], strict=True))
    repeats = max(1, int(MILLISECONDS * 1000 / max(clock(calls["old"], 3), 1.0))) if clock is on_device else CALLS
    found: dict[str, list[float]] = {which: [] for which in calls}
    for turn in range(rounds):
        for which in sorted(calls, reverse=turn % 2 == 1):
            found[which].append(clock(calls[which], repeats))
    medians = {which: statistics.median(times) for which, times in found.items()}
    return {
        "name": name,
        **medians,
        "ratio": medians["new"] / medians["old"],
        "equal": equal,
        "repeats": repeats,
        "times": found,
    }


def on_device(call: Callable[[], Any], repeats: int) -> float:
    """Microseconds of the GPU per call."""
    call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1000 / repeats


def on_host(call: Callable[[], Any], repeats: int) -> float:
    """Microseconds of the CPU per call."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken * 1e6 / repeats


if __name__ == "__main__":
    main()
