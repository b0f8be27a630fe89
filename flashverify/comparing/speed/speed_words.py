"""Time and memory of both sides, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.judge.wording import evidence_text, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.bench.spread import Spread
    from flashverify.comparing.speed.times import Speed, Speeds
    from flashverify.comparing.thresholds import Thresholds

__all__ = ["HEAD", "NOTE", "speed_cells", "speed_doubts", "speed_json", "summary"]

HEAD = ("pass and shape", "before", "after", "after / before", "before / before", "time", "peak memory")
NOTE = (
    "Medians of rounds in which the sides take turns, and in brackets where the median of the ratio lies. “before / before” is the "
    "earlier side against itself in another process: a ratio that reaches into what that is at the same length is no change."
)


def summary(speeds: Speeds) -> str:
    """How many shapes are slower or faster, and by how much; or why nothing was timed."""
    timed = speeds.timed
    if not timed:
        return f"Not timed: {speeds.reason or speeds.rows[0].reason}."
    where = f"on {evidence_text(speeds.evidence).partition(' (')[0]}"
    if speeds.evidence == "cpu":
        where += ", whose times say nothing of a GPU's"
    parts = []
    for change, extreme in (("slower", max), ("faster", min)):
        found = [row.ratio.median for row in timed if speeds.change_of(row) == change]
        if found:
            parts.append(f"{len(found)} {change} (x {extreme(found):.3g} at most)")
    same = sum(speeds.change_of(row) == "none" for row in timed)
    if same:
        parts.append(f"{same} without a change beyond the noise")
    missing = len(speeds.rows) - len(timed)
    parts += [f"{missing} not timed"] if missing else []
    rest = f" The timing ended early: {speeds.reason}." if speeds.reason else ""
    return f"Of {plural(len(speeds.rows), 'shape')} {where}, {', '.join(parts)}.{rest}"


def speed_cells(speeds: Speeds) -> list[tuple[str, ...]]:
    """The table: one row a shape."""
    return [_cells(speeds, row) for row in speeds.rows]


def _cells(speeds: Speeds, row: Speed) -> tuple[str, ...]:
    if row.reason:
        return (str(row.workload), *["–"] * 4, f"not timed: {row.reason}", "–")
    change = speeds.change_of(row)
    times = (f"{_median(row.before):.4g} ms", f"{_median(row.after):.4g} ms")
    return (
        str(row.workload),
        *times,
        _spread(row.ratio),
        _spread(row.noise),
        "=" if change == "none" else change,
        _memory(row),
    )


def _median(times: tuple[float, ...]) -> float:
    ordered = sorted(times)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _spread(spread: Spread) -> str:
    return f"x {spread.median:.3f} ({spread.low:.3f} to {spread.high:.3f})"


def _memory(row: Speed) -> str:
    if row.memory is None:
        return "–"
    before, after = (f"{size / 2**20:,.1f}" for size in row.memory)
    return f"{before} MiB" if before == after else f"{before} -> {after} MiB"


def speed_doubts(speeds: Speeds, limits: Thresholds) -> Iterator[str]:
    """Reasons to look: a shape that the later side alone cannot do, and growth beyond the thresholds that were set."""
    broken = [row for row in speeds.rows if row.newly]
    if broken:
        yield (
            f"the later side cannot be timed at {plural(len(broken), 'shape')} at which the earlier one can: "
            f"{broken[0].reason} ({broken[0].workload})"
        )
    if speeds.died:
        yield f"a process died while it was timed: {speeds.reason}"
    for direction in ("forward", "backward"):
        rows = [row for row in speeds.timed if row.workload.direction == direction]
        slower = [row for row in rows if speeds.change_of(row) == "slower"]
        worst = max(slower, key=lambda row: row.ratio.median, default=None)
        if worst is not None and limits.time_growth is not None and worst.ratio.median > limits.time_growth:
            yield f"the {direction} takes {worst.ratio.median:.3g} times as long: {_spread(worst.ratio)} ({worst.workload})"
        largest = max(rows, key=lambda row: row.memory_ratio or 0.0, default=None)
        limit = limits.memory_growth
        if largest is not None and limit is not None and (largest.memory_ratio or 0.0) > limit:
            yield f"the {direction} takes {largest.memory_ratio:.3g} times the memory: {_memory(largest)} ({largest.workload})"


def speed_json(speeds: Speeds) -> dict[str, Any]:
    """`evidence`, `reason` and `rows`: the shape, times in ms, ratios with their spreads, and memory in bytes."""
    return {
        "evidence": speeds.evidence,
        "reason": speeds.reason,
        "rows": [_row_json(speeds, row) for row in speeds.rows],
    }


def _row_json(speeds: Speeds, row: Speed) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": msgspec.to_builtins(row.workload), "reason": row.reason, "newly": row.newly}
    if row.reason:
        return found
    memory = None if row.memory is None else {"before": row.memory[0], "after": row.memory[1]}
    return found | {
        "before_ms": row.before,
        "after_ms": row.after,
        "again_ms": row.again,
        "ratio": _spread_json(row.ratio),
        "noise": _spread_json(row.noise),
        "change": speeds.change_of(row),
        "peak_memory": memory,
    }


def _spread_json(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "low": spread.low, "high": spread.high}
