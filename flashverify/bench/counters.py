"""What the units of a GPU did while a subject ran: hardware counters, read by Nsight Compute (`ncu`)."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from flashverify.bench.records import KernelCounters
from flashverify.child_process import child_environment
from flashverify.errors import NoVerdictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.bench.records import Workload

__all__ = ["PROFILER", "check_profiler", "counters_of", "kernels_in", "profiled_command"]

PROFILER = "ncu"
_SECONDS = 300.0
"""Time for one pass of one subject: it is compiled, tuned, and run again for each group of counters."""

_UNITS = {
    "tensor cores": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "exponential": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "ALU": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "FMA": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "issue": "sm__issue_active.avg.pct_of_peak_sustained_elapsed",
    "L1 and shared memory": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
"""Percent of what each unit could do in the time of the kernel."""
_NANOSECONDS = "gpu__time_duration.sum"
_NUMBERS = {
    "programs": "launch__grid_size",
    "threads": "launch__block_size",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block",
    "spills": "derived__local_spilling_requests",
}
_WARPS = "sm__warps_active.avg.per_cycle_active"
_STALLS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_SECTIONS = (
    "LaunchStats",
    "Occupancy",
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "InstructionStats",
    "MemoryWorkloadAnalysis",
)
"""Of the profiler, that hold these counters. It stops at a counter by a name that a GPU does not know, and at no section."""


def check_profiler() -> None:
    """Raises UsageError where there is no profiler."""
    if shutil.which(PROFILER) is None:
        raise UsageError(
            f"--counters needs NVIDIA Nsight Compute, which reads them: there is no {PROFILER!r} on the PATH"
        )


def profiled_command(spec: str, workload: Workload, tutorial: str) -> list[str]:
    """The command that runs one pass of a subject under the profiler.

    Clocks are left alone: shares are of the cycles that passed.
    """
    given = msgspec.json.encode({"subject": spec, "workload": workload, "tutorial": tutorial}).decode()
    ncu = [PROFILER, "--csv", "--page", "raw", "--clock-control", "none", "--profile-from-start", "off"]
    sections = [word for section in _SECTIONS for word in ("--section", section)]
    return [*ncu, *sections, sys.executable, "-P", "-m", "flashverify.bench.profiled", given]


def counters_of(spec: str, workload: Workload, tutorial: str = "") -> tuple[KernelCounters, ...]:
    """The counters of every kernel that one pass of the subject launches, in the order of the launches.

    Args:
        spec: of the subject, as `bench` takes it.
        workload: what runs.
        tutorial: the file of Triton's tutorial, where `spec` names it.

    Raises:
        NoVerdictError: the profiler reads nothing, for want of rights or of a GPU that it knows.
    """
    try:
        done = subprocess.run(
            profiled_command(spec, workload, tutorial),
            env=child_environment(interpret=False),
            cwd=os.getcwd(),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoVerdictError(f"{PROFILER} read nothing of {spec} in {_SECONDS:.0f} s") from error
    found = kernels_in(done.stdout.splitlines())
    if not found:
        lines = (line.strip() for line in (done.stdout + done.stderr).splitlines())
        said = [line for line in lines if "ERR" in line or "Error" in line]  # the first is the cause of the others
        raise NoVerdictError(
            f"{PROFILER} read nothing of {spec}: {said[0] if said else f'it ended with {done.returncode}'}"
        )
    return found


def kernels_in(lines: Iterable[str]) -> tuple[KernelCounters, ...]:
    """The kernels of a table as `ncu --csv --page raw` prints it; lines of the profiler itself and of the subject may stand around it."""
    rows = csv.reader(line for line in lines if line.startswith('"'))
    head = next(rows, None)
    if head is None or "Kernel Name" not in head:
        return ()
    next(rows, None)  # units
    return tuple(_kernel(dict(zip(head, row, strict=False))) for row in rows)


def _kernel(row: dict[str, str]) -> KernelCounters:
    stalls = {name: _number(row, _STALL.format(name)) for name in _STALLS}
    in_all = sum(stalls.values()) or 1.0
    return KernelCounters(
        name=row["Kernel Name"].split("(")[0].removeprefix("void "),
        microseconds=_number(row, _NANOSECONDS) / 1e3,
        units={name: _number(row, metric) / 100 for name, metric in _UNITS.items()},
        warps=_number(row, _WARPS),
        stalls={name: value / in_all for name, value in stalls.items() if value},
        **{name: int(_number(row, metric)) for name, metric in _NUMBERS.items()},
    )


def _number(row: dict[str, str], metric: str) -> float:
    """The value of a metric; 0 where this GPU has none of that name."""
    try:
        return float(row.get(metric, "").replace(",", ""))
    except ValueError:
        return 0.0
