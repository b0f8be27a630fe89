"""What limits a kernel, in words, of the counters of its GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.bench.records import KernelCounters

__all__ = ["BUSY", "kernel_text", "limiter"]

BUSY = 0.6
"""Share of its peak from which a unit is what limits a kernel; below it latency does, as in Nsight Compute's Speed of Light."""
_SHOWN_UNITS = 4
_SHOWN_STALLS = 3
_NO_WAIT = ("selected", "not_selected")
_WAITS = {
    "barrier": "for other warps at a barrier",
    "branch_resolving": "for a branch",
    "dispatch_stall": "for dispatch",
    "drain": "for stores to leave",
    "gmma": "for a matrix product",
    "imc_miss": "for constants",
    "lg_throttle": "for room for global accesses",
    "long_scoreboard": "for global memory or an arrival",
    "math_pipe_throttle": "for an arithmetic unit",
    "membar": "for a memory fence",
    "mio_throttle": "for room for shared-memory and special instructions",
    "no_instruction": "for instructions to be fetched",
    "short_scoreboard": "for shared memory or the exponential",
    "sleeping": "asleep",
    "tex_throttle": "for room for textures",
    "wait": "for an instruction of fixed latency",
}


def limiter(kernel: KernelCounters) -> str:
    """The unit that limits the kernel, or `latency` where none is busy."""
    unit = max(kernel.units, key=lambda name: kernel.units[name])
    return unit if kernel.units[unit] >= BUSY else "latency"


def kernel_text(kernel: KernelCounters) -> str:
    """One line: time, limiter, the busiest units, what warps wait for, and what a program holds."""
    units = sorted(kernel.units.items(), key=lambda item: -item[1])[:_SHOWN_UNITS]
    waits = sorted(((n, s) for n, s in kernel.stalls.items() if n not in _NO_WAIT), key=lambda item: -item[1])
    busy = ", ".join(f"{name} {share:.0%}" for name, share in units)
    waiting = ", ".join(f"{_WAITS.get(name, name)} {share:.0%}" for name, share in waits[:_SHOWN_STALLS])
    spills = f", {kernel.spills} spills" if kernel.spills else ""
    return (
        f"{kernel.name}: {kernel.microseconds:.1f} us, limited by {limiter(kernel)}; {busy}; warps wait {waiting}; "
        f"{kernel.warps:.0f} warps a multiprocessor, {kernel.registers} registers, {kernel.shared_bytes // 1024} KiB shared, "
        f"{kernel.programs} programs of {kernel.threads} threads{spills}"
    )
