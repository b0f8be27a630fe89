"""A few of many compilations, such that every value of every axis meets every value of every other one early."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.compiling.records import Job

__all__ = ["spread"]


def spread(jobs: Sequence[Job], count: int | None) -> list[Job]:
    """`count` of the jobs in their order, the same ones every time; all where `count` is None or no smaller.

    An axis value is a word: the subject, the kernel, the architecture, or a word of the launch's label. The next job chosen
    is the one whose pairs of words were chosen least often before: a pair counts half as much each time it recurs.
    """
    if count is None or count >= len(jobs):
        return list(jobs)
    pairs = [tuple(itertools.combinations_with_replacement(_words(job), 2)) for job in jobs]
    seen: Counter[tuple[str, str]] = Counter()
    left, chosen = list(range(len(jobs))), []
    for _ in range(count):
        best = max(left, key=lambda n: sum(0.5 ** seen[pair] for pair in pairs[n]) / len(pairs[n]))
        left.remove(best)
        chosen.append(best)
        seen.update(pairs[best])
    return [jobs[n] for n in sorted(chosen)]


def _words(job: Job) -> list[str]:
    return sorted({job.subject, f"sm_{job.capability}", job.launch.kernel, *job.launch.label.split()})
