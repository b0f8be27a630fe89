"""The table and the JSON of a run of measurements."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.bench.run import COPY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.bench.records import Measurement

__all__ = ["as_json", "as_text", "block_text"]


def as_json(found: Sequence[Measurement], machine: str) -> dict[str, Any]:
    """One JSON object: every time of every round, and the figures taken from the medians."""
    rows = []
    for item in found:
        row = msgspec.to_builtins(item)
        if item.milliseconds:
            row |= {"median_ms": item.median, "tflops": item.tflops, "kv_gb_per_s": item.bandwidth}
        rows.append(row)
    return {"machine": machine, "measurements": rows, "exit_code": 0}


def as_text(found: Sequence[Measurement]) -> str:
    """One block a workload."""
    groups = itertools.groupby(found, key=lambda item: item.workload)
    return "\n\n".join(block_text(list(group)) for _, group in groups)


def block_text(group: Sequence[Measurement]) -> str:
    """The subjects on one workload: median, spread, speed, and how many times faster the first one is."""
    first = group[0]
    width = max(len(item.subject) for item in group)
    lines = [str(first.workload)]
    for item in group:
        if not item.milliseconds:
            lines.append(f"  {item.subject:{width}}  not measured: {item.reason}")
            continue
        spread = f"{item.median:9.4f} ms [{min(item.milliseconds):.4f} .. {max(item.milliseconds):.4f}]"
        speed = f"{item.bandwidth:8.0f} GB/s" if item.subject == COPY else f"{item.tflops:8.1f} TFLOP/s"
        ratio = f"  {first.subject} is {item.median / first.median:.2f} times as fast" if item is not first else ""
        lines.append(f"  {item.subject:{width}}  {spread}  {speed}{ratio if first.milliseconds else ''}")
    return "\n".join(lines)
