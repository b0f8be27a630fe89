"""The run folders of the shards of one campaign, read and compared."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.campaign.store.notes import Claims, read_claims, read_lists
from flashverify.campaign.store.reader import RUN, open_run
from flashverify.campaign.supervisor.shard import Shard
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flashverify.campaign.store.reader import StoredRun
    from flashverify.judge.record import RunRecord

__all__ = ["StoredShard", "common_lists", "open_shards"]

_SAME = ("kind", "subjects", "seed", "numerics", "profile", "max_cases")
_VERSIONS = ("flashverify", "commit", "torch", "triton", "hypothesis", "device", "gpu_arch")
"""Of the environment: what decides which cases are drawn, and what they are judged by."""


@dataclass(frozen=True, slots=True)
class StoredShard:
    """One shard.

    Args:
        shard: which one.
        run: as it is stored.
        claims: the batches that it had handed out; None where that is not known.
        lists: the lists that it noted.
        problems: what was damaged in it, in words; grows while results are read.
    """

    shard: Shard
    run: StoredRun
    claims: Claims | None
    lists: dict[str, tuple[str, ...]]
    problems: list[str] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether it judged everything that it was to judge, or ended as it was asked to."""
        return self.run.summary is not None and self.run.summary.stopped in ("budget", "findings")


def open_shards(folders: Sequence[Path]) -> tuple[StoredShard, ...]:
    """The shards in the order of their numbers.

    Raises:
        UsageError: a folder holds no shard, or they are not of one campaign.
        StoreError: a folder cannot be read.
    """
    found: dict[int, StoredShard] = {}
    for folder in folders:
        if not os.path.lexists(folder / RUN):
            raise UsageError(f"{str(folder)!r} is not accepted: it is no run folder, it has no {RUN}")
        shard = _opened(folder)
        if (twin := found.get(shard.shard.index)) is not None:
            raise UsageError(
                f"{str(folder)!r} is not accepted: shard {shard.run.record.shard} is in {str(twin.run.path)!r} already"
            )
        if found:
            _check(next(iter(found.values())), shard)
        found[shard.shard.index] = shard
    return tuple(found[index] for index in sorted(found))


def _opened(folder: Path) -> StoredShard:
    run, problems = open_run(folder), list[str]()
    try:
        shard = Shard.parse(run.record.shard)
    except ValueError:
        shard = Shard()
    if shard.of == 1:
        raise UsageError(f"{str(folder)!r} is not accepted: it holds no shard, it was run without --shard I/N")
    return StoredShard(shard, run, read_claims(folder, problems), read_lists(folder, problems), problems)


def _check(first: StoredShard, other: StoredShard) -> None:
    """Two shards are of one campaign.

    Raises:
        UsageError: they are not; the message names the first difference.
    """
    for name, a, b in _compared(first.run.record, other.run.record):
        if a != b:
            raise UsageError(
                f"{str(other.run.path)!r} is not accepted: its {name} is {b!r}, that of {str(first.run.path)!r} is {a!r}"
            )
    for name in sorted(first.lists.keys() & other.lists.keys()):
        if first.lists[name] != other.lists[name]:
            raise UsageError(
                f"{str(other.run.path)!r} is not accepted: its {name} cases are others than those of {str(first.run.path)!r}"
            )


def _compared(a: RunRecord, b: RunRecord) -> list[tuple[str, object, object]]:
    """What must agree: the words, and the values of both."""
    found: list[tuple[str, object, object]] = [
        ("number of shards", Shard.parse(a.shard).of, Shard.parse(b.shard).of),
        *((name, getattr(a, name), getattr(b, name)) for name in _SAME),
    ]
    one, other = a.environment, b.environment
    return found + [(name, one[name], other[name]) for name in _VERSIONS if name in one and name in other]


def common_lists(shards: Sequence[StoredShard]) -> dict[str, tuple[str, ...]]:
    """Every list that a shard noted."""
    return {name: cases for shard in reversed(shards) for name, cases in shard.lists.items()}
