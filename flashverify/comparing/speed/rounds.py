"""Three processes take turns: the earlier side, the later one, and the earlier one again, which shows what no change looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flashverify.comparing.speed.times import Speed, Speeds
from flashverify.errors import NoVerdictError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.bench.records import Workload

__all__ = ["ROUNDS", "Timed", "timed"]

ROUNDS = 15
_CALLS = 5
"""Of one side in one round, whose median counts."""
_MOST = 20_000.0
"""Milliseconds that a shape may take; calls are fewer where it would take more."""
_LONGEST = 1_000.0
"""Of one call, ms."""


class Timed(Protocol):
    """The process of a side, as far as it is timed."""

    def shapes(self, among: Sequence[Workload] | None = None) -> tuple[tuple[Workload, ...], str]:
        """The shapes that the subject is timed at, or those of `among` that it takes; and what it runs on."""

    def prepare(self, workload: Workload) -> tuple[float, int | None] | str:
        """The time of one call, ms, and its memory, bytes; text where it cannot be timed."""

    def time(self, calls: int) -> float:
        """The median time of calls of the shape that was prepared, ms."""


def timed(before: Timed, after: Timed, again: Timed) -> Speeds:
    """Time both sides at the shapes that both take.

    A process that dies ends the timing, with what there is until then.
    """
    rows: list[Speed] = []
    evidence = ""
    try:
        work, evidence = before.shapes()
        work = after.shapes(work)[0] if work else ()
        if not work:
            return Speeds(
                evidence,
                reason="neither full nor causal attention of the lengths that are timed is taken by both sides",
            )
        for workload in work:
            rows.append(_row(workload, before, after, again))
            if not rows[-1].newly and rows[-1].reason and len(rows) == 1:
                return Speeds(evidence, reason=rows[0].reason)
    except NoVerdictError as error:
        return Speeds(evidence, tuple(rows), str(error), died=True)
    return Speeds(evidence, tuple(rows))


def _row(workload: Workload, before: Timed, after: Timed, again: Timed) -> Speed:
    processes = (before, after, again)
    memory: list[int | None] = []
    slowest = 0.0
    for number in (0, 2, 1):  # a shape that the earlier side cannot do is no news of the later one
        found = processes[number].prepare(workload)
        if isinstance(found, str):
            return Speed(workload=workload, reason=found, newly=number == 1)
        slowest = max(slowest, found[0])
        memory.append(found[1])
    if slowest > _LONGEST:
        return Speed(workload=workload, reason=f"a call takes {slowest / 1000:.1f} s")
    calls = max(1, min(_CALLS, int(_MOST / (len(processes) * ROUNDS * slowest)))) if slowest > 0 else _CALLS
    times: tuple[list[float], ...] = ([], [], [])
    for turn in range(ROUNDS):
        for step in range(len(processes)):  # another one begins each round
            number = (turn + step) % len(processes)
            times[number].append(processes[number].time(calls))
    first, last = memory[0], memory[2]
    return Speed(
        workload=workload,
        before=tuple(times[0]),
        after=tuple(times[1]),
        again=tuple(times[2]),
        memory=None if first is None or last is None else (first, last),
    )
