"""Clocks: how long a call takes on a device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["clock_of", "interleaved"]

_OVERWRITTEN = 2 << 30  # bytes; more than any cache, and half a millisecond in which the host can enqueue the call


def clock_of(device: str) -> Callable[[Callable[[], object]], float]:
    """A function that times one call, in ms: by events of the GPU after its caches were overwritten, or by the wall."""
    if device == "cpu":
        return _wall
    import torch

    evictor = torch.empty(_OVERWRITTEN, dtype=torch.int8, device=device)

    event: Any = torch.cuda.Event  # untyped in torch

    def events(call: Callable[[], object]) -> float:
        start, end = event(enable_timing=True), event(enable_timing=True)
        evictor.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    return events


def _wall(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3


def interleaved(
    calls: dict[str, Callable[[], object]], clock: Callable[[Callable[[], object]], float], *, rounds: int, warmup: int
) -> dict[str, tuple[float, ...]]:
    """Times of every call, in ms, round by round, so that a change of the machine's clock meets all of them.

    Args:
        calls: by name.
        clock: times one call.
        rounds: times taken of each.
        warmup: calls of each beforehand; the first compiles.
    """
    for call in calls.values():
        for _ in range(warmup):
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(clock(call))
    return {name: tuple(values) for name, values in times.items()}
