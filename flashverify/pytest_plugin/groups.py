"""The groups of cases that a marked test stands for: known without drawing a case, so that every worker of xdist collects the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.baseline.entries import Baseline
    from flashverify.pytest_plugin.naming import SubjectName
    from flashverify.pytest_plugin.request import Asked

__all__ = ["SHARDS", "SIZE", "Group", "groups_of", "single_cases_of"]

SIZE = 20
"""Cases of a drawn group; each is drawn from a seed of its own."""
SHARDS = 16
"""Groups of the fixed matrix."""
_LONGEST_ID = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases of one test.

    Attributes:
        asked: by the marker.
        name: of the subject.
        id: in the name of the test.
        drawn: number of the drawn group, and `count`, how many of its cases; None where nothing is drawn.
        shard: number of a group of the matrix, from 0.
        listed: a case of a list; empty otherwise.
        known: number of the entry of the baseline whose case this is, from 0.
        single: position of the one case in its drawn group that a test of its own cases has.
    """

    asked: Asked
    name: SubjectName
    id: str
    drawn: int | None = None
    count: int = SIZE
    shard: int | None = None
    listed: str = ""
    single: int | None = None
    known: int | None = None


def groups_of(asked: Asked, name: SubjectName, baseline: Baseline | None = None) -> Iterator[Group]:
    """The tests of a marker whose cases the plugin judges; where it names no cases, those of the baseline's entries about the subject too."""
    for number, entry in enumerate(baseline.known if baseline is not None and not asked.listed else ()):
        if entry.subject == name.shown and entry.case:
            yield Group(asked=asked, name=name, id=f"known-{number + 1}", listed=entry.case, known=number)
    if asked.listed:
        yield from _listed(asked, name)
    elif asked.number:
        for number, begin in enumerate(range(0, asked.number, SIZE)):
            end = min(begin + SIZE, asked.number)
            yield Group(asked=asked, name=name, id=f"cases-{begin}-{end - 1}", drawn=number, count=end - begin)
    else:
        for shard in range(SHARDS):
            yield Group(asked=asked, name=name, id=f"standard-{shard + 1}-of-{SHARDS}", shard=shard)


def single_cases_of(asked: Asked, name: SubjectName) -> Iterator[Group]:
    """The tests of a marker that decide about a case themselves: one per case."""
    if asked.listed:
        yield from _listed(asked, name)
    for number in range(asked.number):
        group, single = divmod(number, SIZE)
        count = min(SIZE, asked.number - group * SIZE)
        yield Group(asked=asked, name=name, id=f"case-{number}", drawn=group, count=count, single=single)


def _listed(asked: Asked, name: SubjectName) -> Iterator[Group]:
    for number, text in enumerate(asked.listed):
        words = text.partition(" ")[2] or "default"
        short = words if len(words) <= _LONGEST_ID else f"{words[:_LONGEST_ID]}..."
        yield Group(asked=asked, name=name, id=f"{number}: {short}", listed=text)
