"""What the engine tells its listeners."""

from __future__ import annotations

import msgspec

from flashverify.campaign.store.stats import Stats
from flashverify.judge.record import FindingRecord, Folded, Summary

__all__ = [
    "FindingFolded",
    "FindingMinimal",
    "FindingReconsidered",
    "FindingSeen",
    "Finished",
    "GpuSetAside",
    "Progress",
    "WorkerHealth",
    "WorkerLost",
]


class FindingSeen(msgspec.Struct, frozen=True):
    """A bucket was seen for the first time; it is on disk already. `first` is the first one of the run."""

    record: FindingRecord
    first: bool = False


class FindingMinimal(msgspec.Struct, frozen=True):
    """A finding was shrunk and verified; it is on disk already."""

    record: FindingRecord


class FindingReconsidered(msgspec.Struct, frozen=True):
    """A finding was diagnosed once more, and its diagnosis says more; it is on disk already."""

    record: FindingRecord


class FindingFolded(msgspec.Struct, frozen=True):
    """A failure has the cause of the finding `record`, which holds it now, also on disk; it counts as a finding no more."""

    record: FindingRecord
    folded: Folded


class WorkerLost(msgspec.Struct, frozen=True):
    """A worker died or hung; `reason` in words, `case` where one was in flight, `printed` what it wrote."""

    worker: int
    reason: str
    case: str = ""
    printed: str = ""


class GpuSetAside(msgspec.Struct, frozen=True):
    """A GPU is used no more; `reason` in words."""

    gpu: str
    reason: str


class WorkerHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a worker is.

    Attributes:
        number: of the worker.
        work: `starting`, `judging`, `listing`, `explaining` (findings) or `waiting`.
        quiet: seconds since its last sign of life.
        memory: resident bytes, 0 where unknown.
        gpu: that it has for its own, as `CUDA_VISIBLE_DEVICES` names it; empty for none.
    """

    number: int
    work: str
    quiet: float = 0.0
    memory: int = 0
    gpu: str = ""


class Progress(msgspec.Struct, frozen=True):
    """How far the campaign is; sent about five times a second.

    Attributes:
        errors: cases that the harness could not judge.
        worst: largest finite ratio per output so far.
        remaining: seconds left, None without a time budget.
        total: cases to judge, None where it is not known.
        explaining: findings that are being minimised, verified and diagnosed now.
        explained: findings that were.
        explaining_left: seconds until the time for that is over, None where it is not limited.
        stats: on a GPU, what was compiled and where the time of the workers goes, some seconds ago.
        covering: judged cases that count as coverage.
        since_new: seconds since the last finding that is new, None without one.
        workers: how those that run are.
    """

    elapsed: float
    cases: int
    unsupported: int
    errors: int
    findings: int
    restarts: int
    rate: float
    worst: dict[str, float]
    remaining: float | None = None
    total: int | None = None
    explaining: int = 0
    explained: int = 0
    explaining_left: float | None = None
    stats: Stats | None = None
    covering: int = 0
    since_new: float | None = None
    workers: tuple[WorkerHealth, ...] = ()


class Finished(msgspec.Struct, frozen=True):
    """The campaign is over and its summary is on disk."""

    summary: Summary
