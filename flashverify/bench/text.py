"""The table and the JSON of a run of measurements."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.bench.limiter import kernel_text
from flashverify.bench.limits import COPY, LIMITS, roofline
from flashverify.bench.stored import change

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flashverify.bench.records import Measurement
    from flashverify.bench.stored import Earlier

__all__ = ["as_json", "as_text", "block_text"]


def as_json(found: Sequence[Measurement], machine: str, sources: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One JSON object: every time of every round, and the figures taken from the medians.

    Args:
        found: what was timed.
        machine: what it ran on.
        sources: SHA-256 of the files that were timed, by subject.
    """
    rows = []
    for _, group in itertools.groupby(found, key=lambda item: item.workload):
        items = list(group)
        limit = roofline(items[0].workload, {item.subject: item for item in items})
        for item in items:
            row = msgspec.to_builtins(item)
            if item.milliseconds:
                row |= {"median_ms": item.median, "tflops": item.tflops, "kv_gb_per_s": item.bandwidth}
            if item.milliseconds and item.subject not in LIMITS and not math.isnan(limit):
                row["roofline_share"] = limit / item.median
            rows.append(row)
    return {"machine": machine, "sources": dict(sources or {}), "measurements": rows, "exit_code": 0}


def as_text(found: Sequence[Measurement]) -> str:
    """One block a workload."""
    groups = itertools.groupby(found, key=lambda item: item.workload)
    return "\n\n".join(block_text(list(group)) for _, group in groups)


def block_text(group: Sequence[Measurement], earlier: Earlier | None = None) -> str:
    """The subjects on one workload: median, spread, speed, share of the roofline, and how many times faster the first one is.

    Below a subject stand its kernels, where their counters were read.

    Args:
        group: the measurements of the workload.
        earlier: a stored run; each subject is compared with itself there.
    """
    first = group[0]
    width = max(len(item.subject) for item in group)
    limit = roofline(first.workload, {item.subject: item for item in group})
    lines = [str(first.workload)]
    for item in group:
        if not item.milliseconds:
            lines.append(f"  {item.subject:{width}}  not measured: {item.reason}")
            continue
        spread = f"{item.median:9.4f} ms [{min(item.milliseconds):.4f} .. {max(item.milliseconds):.4f}]"
        speed = f"{item.bandwidth:8.0f} GB/s   " if item.subject == COPY else f"{item.tflops:8.1f} TFLOP/s"
        parts = [] if item.subject in LIMITS or math.isnan(limit) else [f"{limit / item.median:4.0%} of the roofline"]
        if item is not first and item.subject not in LIMITS and first.milliseconds:
            parts.append(f"{first.subject} is {item.median / first.median:.2f} times as fast")
        lines.append(f"  {item.subject:{width}}  {spread}  {speed}  {'; '.join(parts)}".rstrip())
        lines += [f"    {kernel_text(kernel)}" for kernel in item.kernels]
        before = earlier.of(item) if earlier else None
        if before is not None:
            lines.append(f"  {'':{width}}  {_since(before, item)}")
    return "\n".join(lines)


def _since(before: Measurement, now: Measurement) -> str:
    ratio = change(before, now)
    beyond = "" if ratio.low > 1 or ratio.high < 1 else ", no change beyond the noise"
    return f"{before.median:9.4f} ms before: {ratio.median:.3f} times as fast [{ratio.low:.3f} .. {ratio.high:.3f}]{beyond}"
