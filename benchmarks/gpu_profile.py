"""What one process does while it judges cases on a GPU whose kernels are compiled: cases a second, and what takes the time.

    python benchmarks/gpu_profile.py [--subject SPEC] [--kinds N] [--cases N] [--rows N] [--compile] [--device cpu]

Cases whose kernels are not in Triton's cache (`TRITON_CACHE_DIR`) are left out, unless `--compile` asks to compile them. The others are
judged by every check of a search: once to load, once as it is with the time of each check and question, once under torch's profiler for
what the GPU is asked (launches, copies, waits, and the time that its kernels take), and once under Python's. Waiting for the GPU counts
where a value is read or the device is synchronised.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import cProfile
import dataclasses
import pstats
import sys
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

from flashverify.campaign.ahead import ahead_of, since
from flashverify.campaign.environment import resolve_device
from flashverify.campaign.toolkit import bundled
from flashverify.campaign.worker.search import draw
from flashverify.launching.compilations import NotCompiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.case.case import Case

_SHARE_OF_PROFILED = 4
"""One case in so many is judged under torch's profiler, whose records are large."""


def compiled_cases(subject: Any, cases: tuple[Case, ...], compiling: bool) -> list[Case]:
    """The cases whose kernels are compiled; each was judged once."""
    found = []
    for case in cases:
        with contextlib.suppress(NotCompiled):
            with contextlib.nullcontext() if compiling else ahead_of(bundled).compiled_only():
                bundled.judge(subject, case, "fuzz")
            found.append(case)
    return found


@contextlib.contextmanager
def timed_checks() -> Iterator[dict[str, list[float]]]:
    """Seconds of each call by the name of its check, with its questions where a check puts them one by one."""
    from flashverify.checks import engine, registry

    taken: dict[str, list[float]] = collections.defaultdict(list)

    def timed(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def measured(base: Any, names: tuple[str, ...]) -> Any:
            begun = time.perf_counter()
            try:
                return run(base, names)
            finally:
                taken[":".join((name, *names))].append(time.perf_counter() - begun)

        return measured

    specs = tuple(dataclasses.replace(spec, run=timed(spec.name, spec.run)) for spec in registry.CHECK_SPECS)

    def first(name: str) -> Callable[..., Any]:
        plain = getattr(engine, name)

        def measured(*args: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return plain(*args, **named)
            finally:
                taken[f"first pass: {name}"].append(time.perf_counter() - begun)

        return measured

    with mock.patch.multiple(engine, CHECK_SPECS=specs, materialize=first("materialize"), execute=first("execute")):
        yield taken


def show_checks(taken: dict[str, list[float]], cases: int) -> None:
    """Milliseconds a case that each check takes, largest first."""
    for name, seconds in sorted(taken.items(), key=lambda item: -sum(item[1]))[:40]:
        print(
            f"  {1e3 * sum(seconds) / cases:8.2f} ms/case  {1e3 * sum(seconds) / len(seconds):8.2f} ms x {len(seconds):4}  {name}"
        )


def show_device(judge: Callable[[], None], cases: int, rows: int) -> None:
    """What the GPU is asked a case, and how long its kernels take."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        judge()
    events = found.key_averages()
    runtime = [e for e in events if e.key.startswith(("cuda", "cu")) and e.device_type == DeviceType.CPU]
    operators = [e for e in events if e.key.startswith("aten::")]
    kernels = [e for e in events if e.device_type == DeviceType.CUDA]
    print(
        f"a case: {sum(e.count for e in operators) / cases:.0f} operators, {sum(e.count for e in kernels) / cases:.0f} kernels and copies"
    )
    print(f"        {sum(e.self_device_time_total for e in kernels) / cases / 1e3:.3f} ms of the GPU")
    for title, part, key in (
        ("calls of CUDA", runtime, lambda e: e.self_cpu_time_total),
        ("operators", operators, lambda e: e.self_cpu_time_total),
        ("kernels", kernels, lambda e: e.self_device_time_total),
    ):
        print(f"{title}: a case, ms a case")
        for event in sorted(part, key=key, reverse=True)[:rows]:
            print(f"  {event.count / cases:8.1f} {key(event) / cases / 1e3:8.3f}  {event.key[:110]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--kinds", type=int, default=6)
    parser.add_argument("--cases", type=int, default=80)
    parser.add_argument("--rows", type=int, default=45, help="functions that are printed, by each of two orders")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="compile what is not in the cache")
    parser.add_argument("--device", default="cuda", help="cpu: the same cases by subjects that run there")
    options = parser.parse_args()
    device = resolve_device(options.device)
    with bundled.open(device, plain=False):
        import torch

        torch.set_num_threads(1)
        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        subject = bundled.load(options.subject)
        kinds = min(options.kinds, ahead_of(bundled).kinds(subject)[1])
        strategy = ahead_of(bundled).of_kinds(subject, range(kinds)) if kinds else bundled.strategy(subject, device)
        cases = compiled_cases(subject, draw(strategy, options.cases, options.seed), options.compile or not kinds)
        print(f"{len(cases)} of {options.cases} cases are compiled")
        if not cases:
            return 1

        def judge(some: list[Case] = cases) -> None:
            for case in some:
                bundled.judge(subject, case, "fuzz")
            wait()

        before, begun = ahead_of(bundled).spent(), time.perf_counter()
        judge()
        seconds, spent = time.perf_counter() - begun, since(before, ahead_of(bundled).spent())
        print(
            f"plain: {len(cases) / seconds:.1f} cases/s, oracle {spent.oracle / seconds:.0%}, compiling {spent.compiling / seconds:.0%}"
        )
        with timed_checks() as taken:
            judge()
        show_checks(taken, len(cases))
        some = cases[::_SHARE_OF_PROFILED]
        show_device(lambda: judge(some), len(some), options.rows // 2)
        profile = cProfile.Profile()
        profile.runcall(judge)
        for order in ("tottime", "cumulative"):
            pstats.Stats(profile).strip_dirs().sort_stats(order).print_stats(options.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
